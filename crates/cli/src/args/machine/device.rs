//! A device as a user names it: by number, or as PyTorch, TensorFlow or JAX name it.

use stormlog_track::HOST_DEVICE;

/// `0`, `cuda:0`, `/GPU:0`, `/device:GPU:0`, `gpu`; a CPU is -1.
pub(crate) fn number(text: &str) -> Result<i64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let name = lower.rsplit('/').next().unwrap_or_default();
    let name = name.strip_prefix("device:").unwrap_or(name);
    let (kind, index) = name.split_once(':').unwrap_or((name, "0"));
    let index = index.parse::<u32>().map(i64::from).ok();
    let found = match kind {
        "cpu" => Some(HOST_DEVICE),
        "gpu" | "cuda" | "rocm" => index,
        _ => name.parse::<i64>().ok().filter(|number| *number >= HOST_DEVICE),
    };
    found.ok_or_else(|| {
        format!("unknown device {text}; expected cpu, a GPU's number, gpu:N, cuda:N or /GPU:N")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_each_framework_names_them() {
        let known = [
            ("/GPU:0", 0),
            ("/device:GPU:3", 3),
            ("/job:w/task:0/device:GPU:2", 2),
            ("gpu:1", 1),
            ("cuda:2", 2),
            ("gpu", 0),
            ("7", 7),
            ("-1", HOST_DEVICE),
            ("/CPU:0", HOST_DEVICE),
            ("cpu", HOST_DEVICE),
        ];
        for (text, device) in known {
            assert_eq!(number(text), Ok(device), "{text}");
        }
        for text in ["", "/TPU:0", "tpu", "metal", "/GPU:x", "/GPU:-1", "-2", "gpu:"] {
            assert!(number(text).unwrap_err().contains("unknown device"), "{text}");
        }
    }
}
