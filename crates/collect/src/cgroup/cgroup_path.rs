//! Finds the directory of a process's memory cgroup from `/proc/PID/cgroup` and the mounts.
//!
//! A container may see its group as `/` (cgroup namespace), or mounted at a sub-tree, or not at all. A hybrid host has
//! both versions mounted, and memory is then counted by version 1.

use std::path::PathBuf;

use super::{MemoryCgroup, Version};
use crate::text::{lines, read_bounded, unescape_octal, words};
use crate::{CollectError, Roots, text};

pub(super) fn find(roots: &Roots, pid: u32) -> Result<MemoryCgroup, CollectError> {
    let file = roots.of_process(pid).join("cgroup");
    let membership = read_bounded(&file, text::WHOLE_LIMIT)
        .map_err(|error| CollectError::of_process(pid, &file, error))?;
    // The mounts as we see them, not as the process does: we open the files.
    let mountinfo = text::read_whole(&roots.proc.join("self/mountinfo"))?;
    let (version, path) = member_of(&membership).ok_or_else(|| CollectError::Unavailable {
        what: "the memory cgroup",
        reason: format!("process {pid} is not in a memory cgroup"),
    })?;
    let mount = mount_of(&mountinfo, version).ok_or_else(|| CollectError::Unavailable {
        what: "the memory cgroup",
        reason: "no cgroup file system with the memory controller is mounted".to_owned(),
    })?;
    let directory = directory_of(&mount, &path);
    // Every group of version 2 but the true root has these files; that of version 1 is not marked, but its name is "/".
    let sees_root = match version {
        Version::V1 => mount.root == "/" && !in_cgroup_namespace(roots),
        Version::V2 => !["cgroup.type", "memory.max"].iter().any(|file| mount.point.join(file).exists()),
    };
    Ok(MemoryCgroup { version, path, directory, mount: mount.point, sees_root })
}

/// Whether this process lives in a cgroup namespace of its own, where `/` is not the root.
fn in_cgroup_namespace(roots: &Roots) -> bool {
    let link = |pid: &str| std::fs::read_link(roots.proc.join(pid).join("ns/cgroup")).ok();
    // The first namespace has a fixed inode, the same in every kernel.
    link("self").is_some_and(|name| name.as_os_str() != "cgroup:[4026531835]")
}

/// The version and the path of the memory cgroup, from `N:controllers:path` lines.
fn member_of(membership: &[u8]) -> Option<(Version, String)> {
    let mut unified = None;
    for line in lines(membership) {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let path = String::from_utf8_lossy(path.strip_suffix(b" (deleted)").unwrap_or(path)).into_owned();
        if controllers.split(|byte| *byte == b',').any(|name| name == b"memory") {
            return Some((Version::V1, path));
        }
        if id == b"0" && controllers.is_empty() {
            unified = Some((Version::V2, path));
        }
    }
    unified
}

struct Mount {
    /// The part of the hierarchy that is mounted.
    root: String,
    point: PathBuf,
}

/// The mount of the hierarchy: `ID PARENT DEV ROOT POINT OPTIONS [TAGS] - TYPE SOURCE SUPER`.
fn mount_of(mountinfo: &[u8], version: Version) -> Option<Mount> {
    let mut found = None;
    for line in lines(mountinfo) {
        let fields: Vec<&[u8]> = words(line).collect();
        let Some(dash) = fields.iter().position(|field| *field == b"-") else { continue };
        let (Some(root), Some(point), Some(kind)) = (fields.get(3), fields.get(4), fields.get(dash + 1))
        else {
            continue;
        };
        let matches = match version {
            Version::V2 => *kind == b"cgroup2",
            Version::V1 => {
                *kind == b"cgroup"
                    && fields.last().is_some_and(|options| {
                        options.split(|byte| *byte == b',').any(|name| name == b"memory")
                    })
            }
        };
        if matches {
            let text = |bytes: &[u8]| String::from_utf8_lossy(&unescape_octal(bytes)).into_owned();
            let mount = Mount { root: text(root), point: PathBuf::from(text(point)) };
            // A mount of the whole tree is better than one of a part.
            if mount.root == "/" {
                return Some(mount);
            }
            found.get_or_insert(mount);
        }
    }
    found
}

/// The group's directory below the mount. When the group is outside of what is mounted, the mount itself is the best
/// there is: it is the container's own group.
fn directory_of(mount: &Mount, path: &str) -> PathBuf {
    let below = match path.strip_prefix(mount.root.trim_end_matches('/')) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Roots::below(&mount.point, rest),
        _ => Roots::below(&mount.point, path),
    };
    if below.is_dir() || !mount.point.is_dir() { below } else { nearest(&mount.point, below) }
}

/// The nearest directory above that exists: a group that was removed still counts in its parents.
fn nearest(point: &std::path::Path, path: PathBuf) -> PathBuf {
    path.ancestors()
        .find(|level| level.is_dir() && level.starts_with(point))
        .map_or_else(|| point.to_path_buf(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn memory_is_version_1_on_a_hybrid_host() {
        let hybrid = b"9:name=systemd:/\n4:cpu,memory:/a:b\n0::/x\n";
        assert_eq!(member_of(hybrid), Some((Version::V1, "/a:b".into())));
        assert_eq!(member_of(b"0::/user.slice (deleted)\n"), Some((Version::V2, "/user.slice".into())));
        assert_eq!(member_of(b"9:name=systemd:/\nnonsense\n"), None);
    }

    fn stand_in(mountinfo: &str, membership: &str, groups: &[&str]) -> (tempfile::TempDir, Roots) {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        let proc = root.join("proc");
        for pid in ["self", "7"] {
            fs::create_dir_all(proc.join(pid)).unwrap();
        }
        let mountinfo = mountinfo.replace("SYS", &root.join("sys").to_string_lossy());
        fs::write(proc.join("self/mountinfo"), mountinfo).unwrap();
        fs::write(proc.join("7/cgroup"), membership).unwrap();
        for group in groups {
            fs::create_dir_all(root.join("sys").join(group)).unwrap();
        }
        let roots = Roots { proc, sys: root.join("sys") };
        (temporary, roots)
    }

    #[test]
    fn a_container_without_a_cgroup_namespace_is_found_from_a_stand_in_proc() {
        let (temporary, roots) = stand_in(
            "31 23 0:28 / SYS rw - tmpfs tmpfs rw\n\
             35 31 0:32 /docker/abc SYS/memory ro,nosuid master:3 - cgroup cgroup rw,memory\n",
            "4:memory:/docker/abc/sub\n0::/\n",
            &["memory/sub"],
        );
        let found = MemoryCgroup::of_in(&roots, 7).unwrap();
        assert_eq!(found.directory, temporary.path().join("sys/memory/sub"));
        assert!(!found.sees_root);
        let levels: Vec<&Path> = found.levels().collect();
        assert_eq!(levels.len(), 2);
    }

    #[test]
    fn a_group_outside_the_mount_is_the_mount_from_a_stand_in_proc() {
        let (temporary, roots) = stand_in(
            "35 31 0:32 / SYS rw - cgroup2 cgroup2 rw,nsdelegate\n",
            "0::/../../elsewhere\n",
            &["other"],
        );
        let found = MemoryCgroup::of_in(&roots, 7).unwrap();
        assert_eq!(found.directory, temporary.path().join("sys"));
        assert!(MemoryCgroup::of_in(&roots, 8).is_err_and(|error| error.is_gone()));
    }

    #[test]
    fn limits_nest_from_a_stand_in_sysfs() {
        let (temporary, roots) =
            stand_in("35 31 0:32 / SYS rw - cgroup2 cgroup2 rw\n", "0::/job/step/task\n", &["job/step/task"]);
        let sys = temporary.path().join("sys");
        fs::write(sys.join("job/memory.max"), "1000\n").unwrap();
        fs::write(sys.join("job/memory.current"), "900\n").unwrap();
        fs::write(sys.join("job/step/memory.max"), "max\n").unwrap();
        fs::write(sys.join("job/step/task/memory.max"), "5000\n").unwrap();
        fs::write(sys.join("job/step/task/memory.events"), "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n")
            .unwrap();
        fs::write(sys.join("job/step/task/memory.stat"), "anon 5\ninactive_file 100\n").unwrap();
        fs::write(sys.join("job/step/task/memory.current"), "700\n").unwrap();
        let found = MemoryCgroup::of_in(&roots, 7).unwrap();
        assert!(found.sees_root);
        let memory = found.read();
        let limit = memory.effective_limit.clone().unwrap();
        assert_eq!((limit.bytes, limit.usage), (1000, Some(900)));
        assert_eq!(limit.directory, Some(sys.join("job")));
        let own = memory.own().unwrap();
        assert_eq!(own.events.oom_kill, Some(1));
        assert_eq!(own.events.oom_group_kill, None);
        assert_eq!(own.working_set(), Some(600));
        assert_eq!(memory.levels[1].limit, Some(super::super::Limit::Unlimited));
        assert_eq!(memory.levels[3].limit, None);
        assert_eq!(found.usage_reader().unwrap().usage().unwrap(), 700);
    }

    proptest! {
        #[test]
        fn no_text_panics_or_leaves_the_mount(
            noise in proptest::collection::vec(any::<u8>(), 0..200),
            path in "(/|\\.\\.|a|\u{0}| ){0,12}",
            root in "(/|\\.\\.|a){0,6}",
        ) {
            member_of(&noise);
            mount_of(&noise, Version::V1);
            mount_of(&noise, Version::V2);
            let mount = Mount { root, point: "/nonexistent/mount".into() };
            prop_assert!(directory_of(&mount, &path).starts_with("/nonexistent/mount"));
        }
    }
}
