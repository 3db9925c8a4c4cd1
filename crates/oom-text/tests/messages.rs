//! Messages that need more than their own words: those without a size, those of the `cudaMallocAsync` allocator, and text that is not a message.
//! The forms are those of faustomorales/keras-ocr 195, iperov/DeepFaceLab 5533, NovaSky-AI/SkyRL 624, huggingface/transformers 22328 and google/trax 431.

use stormlog_oom_text::{Failure, Framework, Verdict, page, read};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const GPU: &str = "/job:localhost/replica:0/task:0/device:GPU:0";

fn only(text: &str) -> Failure {
    let mut failures = read(text);
    assert_eq!(failures.len(), 1, "{text}: {failures:?}");
    failures.remove(0)
}

#[test]
fn message_without_a_size_belongs_to_the_dump_before_it() {
    let failure = only(include_str!("data/tensorflow_short_message.txt"));
    assert_eq!(failure.framework, Some(Framework::TensorFlow));
    assert_eq!(failure.requester.as_deref(), Some("MatMul"), "the allocator names the operation itself");
    assert_eq!((failure.requested, failure.verdict()), (Some(256 * MIB), Verdict::TooLarge));
    assert_eq!(failure.device.as_deref(), Some(GPU));
}

#[test]
fn message_without_a_size_and_a_dump_has_operation_and_device() {
    let text = format!(
        "ResourceExhaustedError: {{{{function_node __wrapped__Mul_device_{GPU}}}}} failed to allocate memory [Op:Mul]\n"
    );
    let failure = only(&text);
    assert_eq!((failure.requester.as_deref(), failure.device.as_deref()), (Some("Mul"), Some(GPU)));
    assert!(page(&[failure]).contains("TF_CPP_MIN_LOG_LEVEL=0"));
    let graph = "  (0) Resource exhausted: failed to allocate memory\n\t [[{{node mul_89}}]]\n\
                 \x20 (1) Resource exhausted: failed to allocate memory\n\t [[{{node mul_89}}]]\n";
    assert_eq!(only(graph).requester.as_deref(), Some("mul_89"));
}

#[test]
fn async_allocator_is_judged_by_its_limit() {
    let text = include_str!("data/tensorflow_cuda_async.txt");
    let failure = only(text);
    assert_eq!(failure.allocator.as_deref(), Some("gpu_async_0"));
    assert_eq!((failure.requested, failure.stats.in_use), (Some(2 * GIB), Some(14 * GIB)));
    assert_eq!(failure.verdict(), Verdict::TooLarge);
    assert_eq!(failure.free().total(), Some(GIB));
    assert_eq!(failure.largest_sizes()[0].bytes(), 14 * GIB);
    assert_eq!(failure.tensor.as_ref().and_then(|tensor| tensor.bytes), Some(2 * GIB));
    let text = page(&[failure]);
    assert!(text.contains("Too large: 1.00 GiB was free in total, of a limit of 15.00 GiB."), "{text}");
    assert!(text.contains("7 × 2.00 GiB"), "{text}");
}

#[test]
fn async_allocator_below_its_limit_was_refused_by_the_driver() {
    let text = include_str!("data/tensorflow_cuda_async.txt").replace("15032385536", "4294967296");
    assert_eq!(only(&text).verdict(), Verdict::DriverRefused);
    // The device reports enough: the figures do not decide, and there is no list of chunks to ask for.
    let failure = only(&text.replace("104857600/", "8589934592/"));
    assert_eq!(failure.verdict(), Verdict::Unknown);
    assert!(!page(&[failure]).contains("TF_CPP_MIN_LOG_LEVEL"));
}

#[test]
fn async_allocator_without_counters_is_judged_by_the_device() {
    let text: Vec<&str> = include_str!("data/tensorflow_cuda_async.txt").lines().take(2).collect();
    let failure = only(&text.join("\n"));
    assert_eq!((failure.verdict(), failure.free().total()), (Verdict::TooLarge, Some(100 * MIB)));
}

#[test]
fn runtime_of_a_tpu_reports_what_is_free() {
    for (text, requested, free, verdict) in [
        (
            "Error allocating device buffer: Attempting to allocate 64.00M. That was not possible. There are 44.44M free.; (0x0x0_HBM0)",
            64 * MIB,
            "44.44 MiB",
            Verdict::TooLarge,
        ),
        (
            include_str!("data/jax_tpu_runtime.txt"),
            (31.06 * MIB as f64) as u64,
            "58.64 MiB",
            Verdict::Fragmented,
        ),
        (
            "Attempting to reserve 13.10G at the bottom of memory. That was not possible. There are 13.20G free, 0B reserved, and 12.95G reservable.",
            (13.1 * GIB as f64) as u64,
            "13.20 GiB",
            Verdict::Fragmented,
        ),
    ] {
        let failure = only(text);
        assert_eq!((failure.requested, failure.verdict()), (Some(requested), verdict), "{text}");
        let page = page(&[failure]);
        assert!(page.contains(&format!("{free} was free in total")), "{page}");
    }
}

#[test]
fn every_memory_space_of_a_tpu_is_read() {
    for text in [
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 17.00M of 16.00M vmem. Exceeded vmem capacity by 1.00M.",
        "Ran out of memory in memory space vmem while allocating on stack for %fusion.3. Scoped allocation with size 17.00M and limit 16.00M \
         exceeded scoped vmem limit by 1.00M.",
    ] {
        let failure = only(text);
        assert_eq!((failure.requested, failure.pool.limit), (Some(17 * MIB), Some(16 * MIB)));
        assert_eq!((failure.device.as_deref(), failure.verdict()), (Some("vmem"), Verdict::TooLarge));
        assert!(page(&[failure]).contains("xla_tpu_scoped_vmem_limit_kib"));
    }
}

#[test]
fn xla_on_a_cpu_takes_memory_from_the_host() {
    let text = page(&read("RESOURCE_EXHAUSTED: Out of memory allocating 281474976710656 bytes."));
    assert!(text.contains("The host allocator failed") && !text.contains("TF_CPP_MIN_LOG_LEVEL"), "{text}");
}

#[test]
fn message_quoted_by_another_program_is_one_failure() {
    let text = "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 40000000000 bytes.\n\
                stormlog: train.py ran out of memory: JaxRuntimeError (RESOURCE_EXHAUSTED: Out of memory allocating 40000000000 bytes).\n";
    assert_eq!(only(text).requested, Some(40_000_000_000));
}

#[test]
fn words_without_figures_are_no_failure() {
    for text in [
        "Allocator (%s) ran out of memory trying to allocate %s (rounded to %d)requested by op %s",
        "OOM when allocating tensor with shape[\0 and type \0 on \0 by allocator \0",
        "OOM when allocating tensor with shape[%s] and type %s on %s by allocator %s",
        "RESOURCE_EXHAUSTED\0failed to allocate memory\0OOM\0",
        "error: failed to allocate memory",
        "Attempting to allocate 5 blocks",
        "Attempting to reserve %s. That was not possible. There are %s free",
        "Out of memory while trying to allocate \0(%uB)",
        "Ran out of memory in memory space %s. Used %s of %s hbm.",
        "gpu_cudamallocasync_allocator.cc:3] %s cuMemAllocAsync failed to allocate  bytes: ",
    ] {
        assert_eq!(read(text), [], "{text}");
    }
}
