//! The environment variable with the settings of PyTorch's CUDA allocator, for advice.
//!
//! PyTorch 2.9 renamed it: it warns about the old name, and older releases know only that one.

/// Read by PyTorch 2.9 and newer.
const CURRENT: &str = "PYTORCH_ALLOC_CONF";
/// The only name before, and a deprecated one since.
const BEFORE: &str = "PYTORCH_CUDA_ALLOC_CONF";
/// The release that renamed it.
const RENAMED_IN: (u32, u32) = (2, 9);

/// `PYTORCH_ALLOC_CONF=expandable_segments:True`, with the name that this release of PyTorch wants; with both where it is unknown.
#[must_use]
pub fn setting(settings: &str, torch_version: Option<&str>) -> String {
    match torch_version.and_then(release) {
        Some(release) if release < RENAMED_IN => format!("{BEFORE}={settings}"),
        Some(_) => format!("{CURRENT}={settings}"),
        None => format!("{CURRENT}={settings} ({BEFORE} before PyTorch {}.{})", RENAMED_IN.0, RENAMED_IN.1),
    }
}

/// `2.11.0+cu130` → (2, 11).
fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    let number = |part: &str| part.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    Some((number(parts.next()?)?, number(parts.next()?)?))
}

#[cfg(test)]
mod tests {
    use super::setting;

    #[test]
    fn the_name_is_that_of_the_release() {
        for (version, text) in [
            (Some("2.11.0+cu130"), "PYTORCH_ALLOC_CONF=a:1"),
            (Some("2.9.0a0"), "PYTORCH_ALLOC_CONF=a:1"),
            (Some("2.8.0"), "PYTORCH_CUDA_ALLOC_CONF=a:1"),
            (Some("1.13.1+cu117"), "PYTORCH_CUDA_ALLOC_CONF=a:1"),
            (Some("main"), "PYTORCH_ALLOC_CONF=a:1 (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9)"),
            (None, "PYTORCH_ALLOC_CONF=a:1 (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9)"),
        ] {
            assert_eq!(setting("a:1", version), text, "{version:?}");
        }
    }
}
