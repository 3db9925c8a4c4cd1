//! Real processes: this one, children, grandchildren, orphans, zombies, and numbers of processes that have ended.

mod common;

use std::fs;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Child, wait_until};
use stormlog_collect::ProcessTree;
use stormlog_collect::process::{MapLimits, ProcessReader, State};

const MIB: u64 = 1 << 20;

#[test]
fn this_process_is_read_and_its_growth_seen() {
    let mut reader = ProcessReader::this().unwrap();
    let before = reader.memory().unwrap();
    let block = black_box(vec![1u8; 64 << 20]);
    let after = reader.memory().unwrap();
    assert!(after.rss >= before.rss + 48 * MIB, "{before:?} {after:?}");
    assert!(after.vms >= after.rss && after.shared <= after.rss);
    let sample = reader.sample().unwrap();
    let status = sample.status.unwrap();
    assert!(status.peak_rss.unwrap() >= status.rss.unwrap());
    assert!(status.swap.is_some());
    let stat = sample.stat.unwrap();
    assert_eq!(stat.start_time, reader.start_time());
    assert!(stat.minor_faults > 0 && stat.threads >= 1);
    assert_eq!(stat.ppid, std::os::unix::process::parent_id());
    let detail = reader.detail().unwrap();
    assert!(detail.uss.unwrap() <= detail.pss.unwrap() && detail.pss.unwrap() <= detail.rss.unwrap());
    let maps = reader.map_summary(MapLimits::default()).unwrap();
    assert!(maps.total.rss.unwrap() >= 48 * MIB);
    assert!(maps.anonymous.rss.unwrap() >= 48 * MIB && maps.stack.rss.unwrap() > 0);
    assert!(!maps.top_files.is_empty() && maps.top_files.len() <= 20 && !maps.truncated);
    assert!(reader.command_line().unwrap().arguments[0].contains("processes"));
    drop(block);
}

/// The mark belongs to the whole process, so a child of our own is measured, not this test and its neighbours.
#[test]
fn the_peak_inside_a_call_is_true_though_it_was_given_back() {
    let mut child = Child::start("hold");
    let mut reader = ProcessReader::open(child.pid()).unwrap();
    child.say("96");
    let earlier = reader.status().unwrap().peak_rss.unwrap();
    let window = reader.begin_peak().unwrap();
    assert!(window.is_exact && window.peak_before.unwrap() >= 96 * MIB);
    child.say("32");
    let peak = reader.end_peak(&window).unwrap();
    let reached = peak.peak_rss.unwrap();
    assert!(reached >= window.rss_before + 30 * MIB, "{peak:?}");
    assert!(reached < 90 * MIB, "the earlier peak of {earlier} must not count: {peak:?}");
    assert!(peak.rss_after < window.rss_before + 16 * MIB, "{peak:?}");
    assert!(peak.peak_ever.unwrap() >= 96 * MIB);
}

#[test]
fn a_dead_process_is_gone_and_a_zombie_has_no_memory() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let mut reader = ProcessReader::open(child.id()).unwrap();
    assert!(reader.memory().unwrap().rss > 0);
    child.kill().unwrap();
    wait_until(|| reader.stat().is_ok_and(|stat| stat.state == State::Zombie));
    assert!(reader.stat().unwrap().has_exited());
    // Zeros of a zombie are not its memory.
    let error = reader.memory().unwrap_err().to_string();
    assert!(error.contains("has no memory"), "{error}");
    assert_eq!(reader.status().unwrap().rss, None);
    assert!(reader.command_line().unwrap().arguments.is_empty());
    child.wait().unwrap();
    for error in [reader.memory().unwrap_err(), reader.sample().unwrap_err(), reader.detail().unwrap_err()] {
        assert!(error.is_gone(), "{error}");
    }
    assert!(ProcessReader::open(child.id()).unwrap_err().is_gone());
    // No process ever has this number.
    assert!(ProcessReader::open(u32::MAX).unwrap_err().is_gone());
}

#[test]
fn a_tree_follows_children_grandchildren_and_orphans() {
    // The child lives until it is signalled, the grandchild outlives it. What runs behind has no standard input of its own.
    let script = "exec 3<&0; sh -c 'sleep 61 & read line <&3; :' & sleep 60; :";
    let mut root = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
    let mut tree = ProcessTree::of(root.id()).unwrap();
    let is_grandchild = |pid: u32| {
        let arguments = ProcessReader::open(pid).and_then(|reader| reader.command_line());
        arguments.is_ok_and(|line| line.arguments == ["sleep", "61"])
    };
    let mut grandchild = None;
    wait_until(|| {
        tree.refresh();
        grandchild = tree.members().find(|member| is_grandchild(member.pid)).cloned();
        grandchild.is_some()
    });
    let grandchild = grandchild.unwrap();
    assert_eq!(grandchild.depth, 2);
    drop(root.stdin.take());
    wait_until(|| {
        tree.refresh();
        tree.members().any(|member| member.pid == grandchild.pid && member.is_orphan)
    });
    root.kill().unwrap();
    root.wait().unwrap();
    let change = tree.refresh();
    assert!(change.gone.iter().any(|member| member.pid == root.id()));
    // The orphan still belongs to the run.
    assert!(tree.members().any(|member| member.pid == grandchild.pid));
    for member in tree.members() {
        Command::new("kill").args(["-9", &member.pid.to_string()]).status().unwrap();
    }
    wait_until(|| {
        tree.refresh();
        tree.members().next().is_none()
    });
}

#[test]
fn a_tree_under_constant_forking_never_takes_in_strangers() {
    let mut storm = Command::new("sh")
        .args(["-c", "while :; do for i in 1 2 3 4 5 6 7 8; do sleep 0.001 & done; wait; done"])
        .spawn()
        .unwrap();
    let mut tree = ProcessTree::of(storm.id()).unwrap();
    let started = Instant::now();
    let mut added = 0;
    while started.elapsed() < Duration::from_millis(700) || added == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing was ever added");
        let change = tree.refresh();
        for member in &change.added {
            assert!(matches!(member.comm.as_str(), "sleep" | "sh"), "{member:?}");
        }
        added += change.added.len();
    }
    storm.kill().unwrap();
    storm.wait().unwrap();
    wait_until(|| {
        tree.refresh();
        tree.members().next().is_none()
    });
    assert!(ProcessTree::of(storm.id()).unwrap_err().is_gone());
}

#[test]
fn children_files_are_used_where_the_kernel_has_them_from_a_stand_in_proc() {
    let temporary = tempfile::tempdir().unwrap();
    let stat = |pid: u32, parent: u32, start: u64| {
        let task = temporary.path().join(format!("{pid}/task/{pid}"));
        fs::create_dir_all(&task).unwrap();
        let text = format!("{pid} (p) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0\n");
        fs::write(temporary.path().join(format!("{pid}/stat")), text).unwrap();
        fs::write(task.join("children"), "").unwrap();
    };
    stat(10, 1, 100);
    stat(11, 10, 200);
    stat(12, 10, 50); // Older than its parent: a reused number.
    stat(13, 99, 300); // Adopted by another before we looked.
    stat(14, 11, 300);
    fs::write(temporary.path().join("10/task/10/children"), "11 12 13 404 banana 99999999999").unwrap();
    fs::write(temporary.path().join("11/task/11/children"), "14 10").unwrap();
    let roots = stormlog_collect::Roots { proc: temporary.path().into(), sys: temporary.path().into() };
    let tree = ProcessTree::of_in(roots, 10).unwrap();
    let members: Vec<(u32, u32)> = tree.members().map(|member| (member.pid, member.depth)).collect();
    assert_eq!(members, [(10, 0), (11, 1), (14, 2)]);
}

#[test]
fn readers_leak_no_descriptors() {
    let count = || fs::read_dir("/proc/self/fd").unwrap().count();
    let own = std::process::id();
    let once = || {
        ProcessReader::open(own).unwrap().sample().unwrap();
    };
    once();
    // Tests run beside each other and open files too, so only a leak of many is a leak.
    let before = count();
    (0..200).for_each(|_| once());
    assert!(count() < before + 100);
}

/// Not a test: what the children of these tests do.
#[test]
#[ignore = "the program of a child process"]
fn child_program() {
    common::child_program();
}

#[test]
fn a_process_known_by_other_means_becomes_a_member_once() {
    let start = || Command::new("sleep").arg("60").spawn().unwrap();
    let (mut root, mut other) = (start(), start());
    let mut tree = ProcessTree::of(root.id()).unwrap();
    let taken = tree.take_in(other.id()).unwrap();
    assert_eq!((taken.pid, taken.depth, taken.is_orphan), (other.id(), 1, true));
    assert_eq!(tree.take_in(other.id()), None, "it is one already");
    other.kill().unwrap();
    // A zombie has ended, whether it was reaped or not.
    let gone = loop {
        let change = tree.refresh();
        if !change.gone.is_empty() {
            break change.gone;
        }
    };
    assert_eq!(gone[0].pid, other.id());
    assert_eq!(tree.take_in(other.id()), None, "it has ended");
    other.wait().unwrap();
    root.kill().unwrap();
    root.wait().unwrap();
}
