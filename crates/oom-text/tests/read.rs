//! Reports of the BFC allocator in the words of several versions, and text of any content.

use proptest::prelude::*;
use stormlog_oom_text::{Failure, Framework, Verdict, page, read, summary};

const MIB: u64 = 1 << 20;

/// The one failure that a text reports.
fn only(text: &str) -> Failure {
    let mut failures = read(text);
    assert_eq!(failures.len(), 1, "{failures:?}");
    failures.remove(0)
}

#[test]
fn free_memory_in_small_pieces_is_fragmentation() {
    let failure = only(include_str!("data/tensorflow_fragmented.txt"));
    assert_eq!(failure.framework, Some(Framework::TensorFlow));
    assert_eq!(failure.allocator.as_deref(), Some("GPU_0_bfc"));
    assert_eq!(failure.requester.as_deref(), Some("MatMul"));
    assert_eq!(failure.requested, Some(256 * MIB));
    assert_eq!(failure.verdict(), Verdict::Fragmented);
    let free = failure.free();
    assert_eq!(free.largest, Some(96 * MIB));
    assert_eq!(free.in_pool, Some(384 * MIB - 2048));
    assert_eq!((failure.in_use.chunks, failure.free.chunks), (7, 4));
    assert_eq!(failure.chunks.len(), 11);
    assert_eq!(failure.bins.len(), 21);
    let bin = failure.bins.iter().find(|bin| bin.size == 128 * MIB);
    assert_eq!(bin.map(|bin| (bin.chunks, bin.chunks_in_use, bin.bytes_in_use)), Some((4, 4, 640 * MIB)));
    assert_eq!(failure.largest_sizes().first().map(|size| (size.size, size.chunks)), Some((160 * MIB, 4)));
    assert_eq!(failure.stats.limit, Some(1024 * MIB));
    assert_eq!(failure.stats.max_in_use, Some(900 * MIB));
    assert_eq!(failure.stats.allocations, Some(1204));
    assert_eq!(failure.tensor.and_then(|tensor| tensor.bytes), Some(256 * MIB));
}

#[test]
fn too_little_free_in_total_is_a_request_too_large() {
    let failure = only(include_str!("data/tensorflow_too_large.txt"));
    assert_eq!(failure.verdict(), Verdict::TooLarge);
    assert_eq!(failure.free().total(), Some(64 * MIB - 2048));
}

#[test]
fn a_pool_that_may_grow_and_does_not_was_refused_by_the_driver() {
    let failure = only(include_str!("data/tensorflow_driver_refused.txt"));
    assert_eq!(failure.verdict(), Verdict::DriverRefused);
    assert_eq!(failure.pool.regions, 2);
    assert_eq!(failure.free().growable, Some(1208 * MIB));
}

#[test]
fn pool_of_the_host_that_may_grow_was_refused_by_the_system() {
    // Written by TensorFlow 2.21 with oneDNN under RLIMIT_AS.
    let text = include_str!("data/tensorflow_host_pool.txt");
    let failure = only(text);
    assert_eq!((failure.allocator.as_deref(), failure.requester.as_deref()), (Some("mklcpu"), Some("Fill")));
    assert_eq!(failure.pool.taken, Some(256 * MIB));
    assert_eq!(failure.free().in_pool, Some(206 * MIB));
    assert_eq!(failure.pool.growable.map(|bytes| bytes >> 20), Some(23_848), "23.29 GiB");
    assert_eq!(failure.verdict(), Verdict::DriverRefused);
    let page_of_it = page(&[failure]);
    assert!(page_of_it.contains("The system refused: the pool could grow by 23.29 GiB more"), "{page_of_it}");
    assert!(page_of_it.contains("stormlog info shows the limits"), "{page_of_it}");
    // Without TF_CPP_MIN_LOG_LEVEL=0 only its picture is in the log.
    let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with('W')).collect();
    let page_of_it = page(&read(&warnings.join("\n")));
    assert!(page_of_it.contains("Undecided: 80 of 100 cells"), "{page_of_it}");
}

#[test]
fn dump_cut_off_inside_its_bins_leaves_the_verdict_open() {
    let lines: Vec<&str> = include_str!("data/tensorflow_fragmented.txt").lines().collect();
    let bins = |count: &usize| lines[..*count].iter().filter(|line| line.contains("Bin (")).count();
    let some_bins = (1..lines.len()).find(|count| bins(count) == 12).unwrap_or_default();
    let failure = only(&lines[..some_bins].join("\n"));
    assert_eq!(failure.bins.len(), 12);
    assert_eq!((failure.verdict(), failure.free().in_pool), (Verdict::Unknown, None));
    // All bins have the free memory, but not its largest piece.
    let all_bins = (1..lines.len()).find(|count| bins(count) == 21).unwrap_or_default();
    let failure = only(&lines[..all_bins].join("\n"));
    assert_eq!((failure.verdict(), failure.free().in_pool), (Verdict::Unknown, Some(384 * MIB)));
}

#[test]
fn dumps_mixed_line_by_line_leave_the_verdict_open() {
    let dumps =
        [include_str!("data/tensorflow_fragmented.txt"), include_str!("data/tensorflow_too_large.txt")];
    let mixed: Vec<&str> = dumps[0].lines().zip(dumps[1].lines()).flat_map(|(a, b)| [a, b]).collect();
    let failures = read(&mixed.join("\n"));
    assert!(failures.iter().all(|failure| failure.verdict() == Verdict::Unknown), "{failures:?}");
    let text = page(&failures);
    assert!(text.contains("dumps of several processes are mixed"), "{text}");
    assert!(!text.contains("Allocator\n"), "{text}");
    assert!(dumps.iter().all(|dump| !only(dump).is_mixed()));
}

#[test]
fn words_of_2017_are_read() {
    let failure = only(include_str!("data/tensorflow_2017.txt"));
    assert_eq!(failure.requested, Some(286 * MIB));
    assert_eq!(failure.verdict(), Verdict::TooLarge);
    assert_eq!(failure.free().largest, Some(138_578_432));
    assert_eq!(failure.bins.last().map(|bin| bin.chunks), Some(1));
    assert_eq!(failure.free_cells, Some(86));
}

#[test]
fn an_allocator_that_reports_only_its_picture_leaves_the_verdict_open() {
    let failures = read(include_str!("data/jax_warning.txt"));
    let failure = &failures[0];
    assert_eq!(failure.requested, Some(1 << 30));
    assert_eq!(failure.free_cells, Some(0));
    assert_eq!(failure.verdict(), Verdict::Unknown);
    let text = page(&failures);
    assert!(text.contains("none of the 100 cells of the pool map is free"), "{text}");
    assert!(text.contains("TF_CPP_MIN_LOG_LEVEL=0"), "{text}");
}

#[test]
fn holders_are_read_from_the_message_of_an_exception() {
    let failure = only(include_str!("data/tensorflow_usage.txt"));
    assert_eq!(failure.requested, Some(1 << 30));
    assert_eq!(failure.requester.as_deref(), Some("model/dense/MatMul"));
    let holders: Vec<_> = failure.holders.iter().map(|holder| (holder.bytes, holder.name.as_str())).collect();
    assert_eq!(
        holders,
        [(1536 * MIB, "model/embedding/embedding_lookup"), (512 * MIB, "Adam/AssignAddVariableOp")]
    );
}

#[test]
fn the_hosts_allocator_has_no_pool_to_judge() {
    let message = "OP_REQUIRES failed at constant_op.cc:176 : RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[1000000,10000000] and \
                   type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu\n";
    // The library logs it twice and raises it with the operation.
    let failure = only(&format!("{message}{message}{} [Op:Fill] name: \n", message.trim_end()));
    assert_eq!(failure.requested, Some(40_000_000_000_000));
    assert_eq!(failure.requester.as_deref(), Some("Fill"));
    assert!(page(&[failure]).contains("The host allocator failed"));
}

#[test]
fn a_caller_that_continues_with_less_has_not_failed() {
    let failures = read(include_str!("data/tensorflow_harmless.txt"));
    assert!(failures[0].is_harmless);
    assert!(
        page(&failures).starts_with(
            "A program requested 2.27 GiB from the allocator GPU_0_bfc and continued with less."
        )
    );
    // The failure that follows decides.
    let both = [include_str!("data/tensorflow_harmless.txt"), include_str!("data/tensorflow_too_large.txt")]
        .concat();
    let failures = read(&both);
    assert_eq!(failures.len(), 2);
    assert!(summary(&failures).is_some_and(|text| text.contains("Too large")));
}

#[test]
fn a_page_begins_with_the_answer() {
    let text = page(&read(include_str!("data/tensorflow_fragmented.txt")));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "MatMul requested 256.0 MiB (shape [8192,8192], type float) from the allocator GPU_0_bfc on \
         /job:localhost/replica:0/task:0/device:GPU:0 and failed."
    );
    assert_eq!(
        lines[1],
        "Fragmentation: 384.0 MiB was free in total, but the largest free block was 96.00 MiB."
    );
    assert!(lines[2].starts_with("Try: set TF_GPU_ALLOCATOR=cuda_malloc_async"), "{}", lines[2]);
    assert!(text.contains("640.0 MiB  4 × 160.0 MiB"), "{text}");
}

#[test]
fn prefixes_of_launchers_do_not_hide_a_report() {
    let text: String = include_str!("data/tensorflow_too_large.txt")
        .lines()
        .map(|line| format!("[rank0]: {line}\n"))
        .collect();
    let failure = only(&text);
    assert_eq!(failure.verdict(), Verdict::TooLarge);
    assert_eq!(failure.stats.limit, Some(1024 * MIB));
}

#[test]
fn a_text_without_a_failure_has_none() {
    assert!(read("").is_empty());
    assert!(read("epoch 1\nInUse at 7f of size 5 next 1\nLimit: 5\nStats:\n").is_empty());
    assert_eq!(page(&[]), "");
}

#[test]
fn long_report_is_bounded() {
    let mut text = "Allocator (a) ran out of memory trying to allocate 1.00GiB\n".to_owned();
    for at in 0..40_000u64 {
        text.push_str(&format!(
            "InUse at {:x} of size 256 by op op{at} action_count 1 step 1 next 1\n",
            at * 256
        ));
        text.push_str(&format!("1 Chunks of size {at} totalling 1B\n"));
    }
    let failure = only(&text);
    assert_eq!(failure.chunks.len() as u64 + failure.chunks_not_kept, 40_000);
    assert_eq!(failure.in_use.bytes, 40_000 * 256);
    assert!(failure.chunks.len() <= 16 << 10 && failure.in_use_sizes.len() <= 4 << 10);
    assert!(failure.holders.len() <= 1 << 10);
}

proptest! {
    #[test]
    fn text_of_any_content_is_read(cuts in prop::collection::vec((0usize..6000, 0usize..200, any::<u8>()), 0..12)) {
        let mut bytes = include_bytes!("data/tensorflow_fragmented.txt").to_vec();
        for (at, length, byte) in cuts {
            let at = at.min(bytes.len());
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, [byte]);
        }
        let failures = read(&String::from_utf8_lossy(&bytes));
        let _ = page(&failures);
        prop_assert!(serde_json::to_string(&failures).is_ok());
    }
}
