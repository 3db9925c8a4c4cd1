//! The code that `stormlog run` puts into Python programs: its frames are not in a capture, and what it takes for itself is not recorded. Must
//! never hide what the program does, whatever called it.

use stormlog_stack::python::Text;

/// The file that Python imports, and what of it a program recorded from inside has in our package.
const FILES: [&[u8]; 2] = [b"sitecustomize.py", b"/stormlog/_torch/backward.py"];
/// All of its functions are inside ones whose names begin so. Their frames are left out; what the program's code does below them is recorded as always.
const INSTALL: &[u8] = b"_stormlog_install";
/// Of functions with this in their names nothing is recorded, nor of what they call: they call only the standard library.
const UNRECORDED: &[u8] = b"_stormlog_unrecorded";

/// Ids of code objects that are not in a capture.
pub mod code {
    /// Its frame is left out.
    pub const LEFT_OUT: u32 = u32::MAX;
    /// Nothing below its frame is recorded.
    pub const UNRECORDED: u32 = u32::MAX - 1;
}

/// The stack of what is not recorded.
pub const UNRECORDED_NODE: u32 = u32::MAX;

/// The id of a code object of ours; `None` for the program's.
pub fn id_of(name: &Text<'_>, file: &Text<'_>) -> Option<u32> {
    if name.kind != 1 || !name.bytes.starts_with(INSTALL) || !FILES.iter().any(|end| ends_with(file, end)) {
        return None;
    }
    let unrecorded = name.bytes.windows(UNRECORDED.len()).any(|part| part == UNRECORDED);
    Some(if unrecorded { code::UNRECORDED } else { code::LEFT_OUT })
}

/// Whether a text of any width ends so.
fn ends_with(text: &Text<'_>, end: &[u8]) -> bool {
    let width = usize::from(text.kind.max(1));
    let Some(start) = text.bytes.len().checked_sub(end.len() * width) else { return false };
    let units = text.bytes[start..].chunks_exact(width);
    units.zip(end).all(|(unit, byte)| unit[0] == *byte && unit[1..].iter().all(|rest| *rest == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_functions_are_ours() {
        let text = |bytes: &'static [u8]| Text { bytes, kind: 1 };
        let ours = text(b"/somewhere/sitecustomize.py");
        let id = |name, file: &Text<'_>| id_of(&text(name), file);
        assert_eq!(id(b"_stormlog_install", &ours), Some(code::LEFT_OUT));
        assert_eq!(
            id(b"_stormlog_install.<locals>._stormlog_unrecorded_report", &ours),
            Some(code::UNRECORDED)
        );
        let packaged = text(b"/venv/stormlog/_torch/backward.py");
        let getter: &'static [u8] = b"_stormlog_install_backward.<locals>.Engine.run_backward";
        assert_eq!(id(getter, &packaged), Some(code::LEFT_OUT));
        assert_eq!(id(getter, &text(b"/home/user/backward.py")), None);
        assert_eq!(id(b"<module>", &ours), None);
        assert_eq!(id(b"_stormlog_install", &text(b"/home/user/program.py")), None);
        let wide: &'static [u8] = b"s\0i\0t\0e\0c\0u\0s\0t\0o\0m\0i\0z\0e\0.\0p\0y\0";
        assert_eq!(id(b"_stormlog_install", &Text { bytes: wide, kind: 2 }), Some(code::LEFT_OUT));
    }
}
