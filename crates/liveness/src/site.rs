//! Where files are: which directory of which file system, and whether other machines may use it too.

use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::{stat, statfs};

/// A directory among those of all file systems of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// The file system, which has this number until it is unmounted.
    pub device: u64,
    /// The directory in it.
    pub inode: u64,
    /// When it was made, nanoseconds since 1970, where its file system keeps that. A copy was made later.
    pub born_ns: Option<u64>,
    /// Other machines may use it too, and their locks may not be visible.
    pub is_on_network: bool,
}

impl Site {
    /// Of a directory; `None` when it cannot be looked at.
    #[must_use]
    pub fn of(directory: &Path) -> Option<Self> {
        let there = stat(directory).ok()?;
        let born = std::fs::metadata(directory).and_then(|there| there.created()).ok();
        let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.and_then(|born| u64::try_from(born.as_nanos()).ok());
        let is_on_network = is_on_network(directory);
        Some(Site { device: there.st_dev, inode: there.st_ino, born_ns, is_on_network })
    }
}

/// NFS, SMB, CIFS, FUSE, 9P, Ceph, AFS, Coda, Lustre, GPFS, OCFS2, GFS2, Orangefs, VirtualBox and VMware shares (`virtiofs` calls itself
/// FUSE): `linux/magic.h` and the projects' own numbers.
const NETWORK: [u32; 17] = [
    0x6969,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    0x6573_5546,
    0x0102_1997,
    0x00C3_6400,
    0x5346_414F,
    0x6B41_4653,
    0x7375_7245,
    0x0BD0_0BD0,
    0x4750_4653,
    0x7461_636F,
    0x0116_1970,
    0x2003_0528,
    0x786F_4256,
    0xBACB_ACBC,
];

/// Whether the file system at a path may be used by other machines. One that cannot be asked counts as such.
#[must_use]
pub fn is_on_network(path: &Path) -> bool {
    // The word is as wide as a register; the numbers have 32 bits.
    statfs(path).map_or(true, |found| NETWORK.contains(&(found.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_distinguished_and_local_ones_are_local() {
        assert_eq!(Site::of(Path::new("/")), Site::of(Path::new("/.")));
        assert_ne!(Site::of(Path::new("/")), Site::of(Path::new("/proc")));
        assert_eq!(Site::of(Path::new("/nonexistent")), None);
        assert!(!is_on_network(Path::new("/proc")));
        assert!(is_on_network(Path::new("/nonexistent")), "unknown is not local");
    }
}
