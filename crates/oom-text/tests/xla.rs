//! XLA's messages, as JAX raises them on GPUs, TPUs and CPUs. `jax_warning.txt` and `jax_dump.txt` are from an H200; the others have the form of texts in public issues
//! (jax-ml/jax 13428, 33715, prs-eth/thera 10, patrickbryant1/AFProfile 8, DifferentiableUniverseInitiative/flowpm 27) with names of their own.

use proptest::prelude::*;
use stormlog_oom_text::{Failure, Framework, Verdict, page, read};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn only(text: &str) -> Failure {
    let mut failures = read(text);
    assert_eq!(failures.len(), 1, "{failures:?}");
    failures.remove(0)
}

#[test]
fn a_message_behind_the_allocators_report_completes_it() {
    let failure = only(include_str!("data/jax_warning.txt"));
    assert_eq!(failure.framework, Some(Framework::Jax));
    assert_eq!(failure.requested, Some(GIB));
    assert_eq!(failure.requester.as_deref(), Some("jit_broadcast_in_dim"));
    assert_eq!(failure.device.as_deref(), Some("device 0"));
    assert_eq!(failure.allocator.as_deref(), Some("GPU_0_bfc"));
}

#[test]
fn dump_with_units_and_annotations_has_limit_and_executables() {
    let failure = only(include_str!("data/jax_dump.txt"));
    assert_eq!(failure.framework, Some(Framework::Jax));
    assert_eq!(failure.requested, Some(1 << 40));
    assert_eq!(failure.stats.limit, Some((2.8 * GIB as f64) as u64));
    assert_eq!((failure.stats.in_use, failure.stats.allocations), (Some(256 * MIB), Some(14)));
    assert_eq!(failure.pool.growable, Some(0));
    assert_eq!(failure.verdict(), Verdict::TooLarge);
    let holders: Vec<_> = failure.holders.iter().map(|one| (one.name.as_str(), one.bytes)).collect();
    assert_eq!(holders, [("jit_broadcast_in_dim", 256 * MIB), ("jit_convert_element_type", 256)]);
}

#[test]
fn peak_buffers_have_operation_shape_and_line() {
    let failure = only(include_str!("data/jax_buffers.txt"));
    assert_eq!(failure.requested, Some(4_770_354_232));
    let sizes: Vec<u64> = failure.holders.iter().map(|holder| holder.bytes).collect();
    assert_eq!(sizes, [GIB + GIB / 2, 768 * MIB, 128 * MIB]);
    let largest = &failure.holders[0];
    assert_eq!(largest.source.as_deref(), Some("/work/train.py:142"));
    assert_eq!(largest.shape.as_deref(), Some("f32[96,16,512,512]"));
    assert!(largest.name.starts_with("jit(train_step)/jit(main)/dot_general["), "{}", largest.name);
    assert_eq!(
        (failure.holders[1].name.as_str(), failure.holders[2].name.as_str()),
        ("fusion", "entry parameter")
    );
    let program = failure.program;
    assert_eq!(program.temporaries.map(|bytes| bytes / MIB), Some(4546));
    assert_eq!(program.outputs.map(|bytes| bytes / MIB), Some(9871));
    let text = page(&[failure]);
    assert!(text.contains("Compiled program") && text.contains("/work/train.py:142"), "{text}");
}

#[test]
fn a_program_larger_than_the_device_is_too_large() {
    let failure = only(include_str!("data/jax_tpu.txt"));
    assert_eq!(failure.verdict(), Verdict::TooLarge);
    assert_eq!(failure.pool.limit, Some(16 * GIB));
    assert_eq!(failure.holders[0].source.as_deref(), Some("/work/paint.py:31"));
    assert_eq!(failure.holders[0].bytes, 32 * GIB);
    assert_eq!(failure.holders[1].name, "%broadcast.82209");
    let text = page(&[failure]);
    assert!(text.contains("Too large: more than could be given out, of a limit of 16.00 GiB."), "{text}");
    assert!(text.contains("jax.checkpoint"), "{text}");
}

#[test]
fn every_form_of_the_first_line_is_read() {
    for (text, requested) in [
        ("RESOURCE_EXHAUSTED: Out of memory allocating 281474976710656 bytes.", 1 << 48),
        (
            "RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0",
            3_206_250_496,
        ),
        (
            "RESOURCE_EXHAUSTED: Attempting to reserve 8.00G at the bottom of memory. That was not possible.",
            8 * GIB,
        ),
        ("E0101 pjrt_client.cc:77] Out of memory while trying to allocate 7406166528 bytes.", 7_406_166_528),
    ] {
        assert_eq!(only(text).requested, Some(requested), "{text}");
    }
}

#[test]
fn the_autotuner_is_named_with_the_operation_it_tried() {
    let failure = only(include_str!("data/jax_autotuner.txt"));
    assert!(failure.is_autotuning);
    assert_eq!(failure.requested, Some(13_271_040_000));
    let text = page(&[failure]);
    assert!(
        text.starts_with(
            "XLA's autotuner for jit(encode)/jit(main)/Net/conv_general_dilated (/work/net.py:88) requested 12.36 GiB"
        ),
        "{text}"
    );
    assert!(text.contains("--xla_gpu_autotune_level=0"), "{text}");
}

#[test]
fn an_autotuner_that_reports_on_one_line_is_named_too() {
    let text = "JaxRuntimeError: INTERNAL: Autotuning failed for HLO: %fusion.3 = f32[4096,4096]{1,0} fusion(%p0, %p1), kind=kCustom, \
                metadata={op_name=\"jit(step)/dot_general\" stack_frame_id=7}, backend_config={} with error: \
                RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.99GiB (3206250496B).";
    let failure = only(text);
    assert_eq!(failure.requester.as_deref(), Some("XLA's autotuner for jit(step)/dot_general"));
    assert_eq!((failure.requested, failure.is_autotuning), (Some(3_206_250_496), true));
}

#[test]
fn a_failure_long_after_an_autotuner_message_is_not_the_autotuners() {
    let text = format!(
        "Autotuning failed for HLO: %a with error: NOT_FOUND: No valid config found!\n{}\
         RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes.",
        "a line between\n".repeat(10)
    );
    assert!(!only(&text).is_autotuning);
}

#[test]
fn a_message_printed_twice_is_one_failure_with_one_list() {
    let text = include_str!("data/jax_buffers.txt").repeat(2);
    assert_eq!(only(&text).holders.len(), 3);
}

#[test]
fn a_reservation_that_does_not_fit_is_judged_by_the_heap_of_the_device() {
    let text = "Attempting to reserve 3.95G at the bottom of memory. That was not possible.\nHBM capacity 8.00G:\n\
                Currently allocated:    6.08G (   6,532,939,776 bytes)\n";
    assert_eq!(only(text).verdict(), Verdict::TooLarge);
}

proptest! {
    #[test]
    fn text_of_any_content_is_read(cuts in prop::collection::vec((0usize..1800, 0usize..200, any::<u8>()), 0..12)) {
        for text in [include_str!("data/jax_buffers.txt"), include_str!("data/jax_tpu.txt")] {
            let mut bytes = text.as_bytes().to_vec();
            for (at, length, byte) in &cuts {
                let at = (*at).min(bytes.len());
                let end = (at + length).min(bytes.len());
                bytes.splice(at..end, [*byte]);
            }
            let failures = read(&String::from_utf8_lossy(&bytes));
            let _ = page(&failures);
            prop_assert!(failures.iter().all(|failure| failure.holders.len() <= 1 << 10));
        }
    }
}
