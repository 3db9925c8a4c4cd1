//! The memory of devices: exact against what PyTorch's allocator counted on a real GPU, through everything that happens to a capture.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../../capture/tests/common/writer.rs"]
mod writer;

#[path = "common/reports.rs"]
mod reports;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use stormlog_capture::record::{definition, device_address, kind, mark};
use stormlog_capture::{Compactor, Options};
use stormlog_heap::{
    Aggregate, Capture, DeviceStats, Follow, GroupBy, Heap, HeapError, HeapReadOptions, Mode,
};
use stormlog_model::memory::{Memory, Selection};
use writer::Writer;

fn read(path: &Path) -> Heap {
    Capture::open(path).unwrap().read(HeapReadOptions::default()).unwrap()
}

fn cuda(index: u8) -> Memory {
    format!("cuda:{index}").parse().unwrap()
}

fn select(heap: &mut Heap, memory: Memory) {
    heap.select(Selection::One(memory)).unwrap();
}

fn held(heap: &Heap, mode: Mode) -> BTreeMap<String, u64> {
    let entries = heap.profile(mode, None).held.by_function().into_iter();
    entries.filter(|entry| entry.own.bytes > 0).map(|entry| (entry.frame.function, entry.own.bytes)).collect()
}

/// The figures equal what the allocator counted.
fn check(heap: &Heap, counted: &Value, step: &str) {
    let [device] = &heap.stats(10, None).devices[..] else { panic!("{step}: one device") };
    let number = |key: &str| counted[key].as_u64().unwrap();
    let case = format!("{} {step}", counted["case"]);
    assert_eq!(device.device, cuda(0), "{case}");
    assert_eq!(device.allocations, number("allocation.all.allocated"), "{case}: allocations");
    assert_eq!(device.total_allocated_bytes, number("allocated_bytes.all.allocated"), "{case}: bytes");
    assert_eq!(device.peak_bytes, number("allocated_bytes.all.peak"), "{case}: peak");
    assert_eq!(device.live_bytes, number("allocated_bytes.all.current"), "{case}: live");
    assert_eq!(device.peak_reserved_bytes, Some(number("reserved_bytes.all.peak")), "{case}: reserved");
    assert_eq!(device.failed_requests, number("num_ooms"), "{case}: failed requests");
    assert_eq!((device.before_recording_bytes, device.unknown_frees), (0, 0), "{case}");
    assert_eq!(device.top.iter().map(|place| place.bytes).sum::<u64>(), device.live_bytes, "{case}: top");
    assert!(device.top.iter().all(|place| place.file == "train.py" && place.line == 20), "{case}");
}

#[test]
fn figures_equal_what_the_allocator_counted_live_sealed_folded_and_bounded() {
    for case in reports::CASES {
        let (list, counted) = (reports::reports(case), reports::counted(case));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.bin");
        let writer = reports::write(&path, &list, &counted, false);
        writer.end();
        check(&read(&path), &counted, "live");
        let copy = |name: &str| {
            let copy = directory.path().join(name);
            std::fs::copy(&writer.path, format!("{}.live", copy.display())).unwrap();
            copy
        };
        let sealed = copy("sealed.bin");
        Compactor::open(&sealed, Options::default()).unwrap().finish(json!({"exit_code": 0})).unwrap();
        check(&read(&sealed), &counted, "sealed");
        let folded = copy("folded.bin");
        let fold = || Some(Box::<Aggregate>::default() as Box<_>);
        let options = || Options { aggregate: true, fold: fold(), ..Options::default() };
        let mut compactor = Compactor::open(&folded, options()).unwrap();
        compactor.step().unwrap();
        drop(compactor); // killed: state and live file must do
        check(&read(&folded), &counted, "folded, and its compactor killed");
        let mut follow = Follow::open(&folded).unwrap();
        follow.look(u64::MAX).unwrap();
        assert_eq!(follow.heap().devices()[0].peak_bytes, counted["allocated_bytes.all.peak"]);
        Compactor::open(&folded, options()).unwrap().finish(json!({"exit_code": 0})).unwrap();
        check(&read(&folded), &counted, "folded");
        let bounded = copy("bounded.bin");
        let options = Options { max_size: Some(20_000), fold: fold(), ..Options::default() };
        Compactor::open(&bounded, options).unwrap().finish(json!({"exit_code": 0})).unwrap();
        check(&read(&bounded), &counted, "bounded");
    }
}

/// At each moment the memory is what the allocator counted at its last report before it.
#[test]
fn memory_at_a_moment_is_what_the_allocator_counted_then() {
    let (list, counted) = (reports::reports("oom"), reports::counted("oom"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    reports::write(&path, &list, &counted, false);
    for step in [149usize, 4_999, 12_349, 20_049] {
        let options = HeapReadOptions { at_us: Some(1000 + 10 * step as u64), ..HeapReadOptions::default() };
        let heap = Capture::open(&path).unwrap().read(options).unwrap();
        // A new moment begins with every fiftieth report.
        let last = list[..=step].iter().rfind(|report| report.kind != 'o').unwrap();
        assert_eq!(heap.profile(Mode::At, None).held.whole().bytes, last.allocated, "report {step}");
    }
    let mut heap = read(&path);
    select(&mut heap, cuda(0));
    let failed = heap.last_failed_request(None).unwrap();
    let out = list.iter().rfind(|report| report.kind == 'o').unwrap();
    assert_eq!((failed.bytes, failed.allocated_bytes), (out.size, Some(out.allocated)));
    assert_eq!((failed.reserved_bytes, failed.address_space_bytes), (Some(out.reserved), None));
    assert_eq!(failed.stack[0].file, "train.py");
    assert_eq!(heap.profile(Mode::Failure, None).held.whole().bytes, out.allocated);
}

/// One host thread and two devices, the second of which the driver reports too.
fn several(path: &Path, sample_bytes: u64) -> Writer {
    let mut writer = Writer::create(path, 2, sample_bytes);
    for stream in 0..2 {
        writer.define_code(stream, 7, "step", "/home/me/train.py", 10);
        writer.define_code(
            stream,
            8,
            "linear",
            "/v/lib/python3.12/site-packages/torch/nn/modules/linear.py",
            50,
        );
    }
    let step = writer.python_node(0, 7, 0, 0);
    let linear = writer.python_node(0, 8, 0, step);
    let caller = writer.python_node(1, 7, 0, 0);
    let backward = writer.mark_node(1, mark::BACKWARD, caller);
    let several = writer.mark_node(1, mark::BACKWARD_AMBIGUOUS, 0);
    writer.time(0, 1000);
    writer.allocate(0, kind::MALLOC, 0x5000, 700, (step, 0));
    for (number, device) in [(0, [1, 0, 0]), (5, [1, 1, 0]), (6, [1, 1, 1])] {
        writer.define_device(0, number, device);
    }
    writer.allocate(0, kind::DEVICE_ALLOCATION, device_address(0, 0x5000), 1 << 20, (linear, 0));
    // The same address on each: four blocks.
    writer.allocate(0, kind::DEVICE_ALLOCATION, device_address(5, 0x5000), 2 << 20, (linear, 0));
    writer.allocate(0, kind::DEVICE_ALLOCATION, device_address(6, 0x5000), 8 << 20, (step, 0));
    writer.time(1, 2000);
    writer.allocate(1, kind::DEVICE_ALLOCATION, device_address(0, 0x20_0000), 4096, (backward, 0));
    writer.allocate(1, kind::DEVICE_ALLOCATION, device_address(0, 0x30_0000), 512, (several, 0));
    writer.time(1, 3000);
    writer.device_free(1, device_address(5, 0x5000), 0);
    writer.time(0, 4000);
    writer
}

#[test]
fn each_device_and_source_has_figures_of_its_own_beside_a_sampled_host() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    several(&path, 1 << 19);
    for is_sealed in [false, true] {
        if is_sealed {
            Compactor::open(&path, Options::default()).unwrap().finish(json!({})).unwrap();
        }
        let mut heap = read(&path);
        let names: Vec<String> = heap.memories().iter().map(Memory::to_string).collect();
        assert_eq!(names, ["host", "cuda:0", "cuda:1", "cuda:1/driver"]);
        assert_eq!(heap.memory(), Memory::Host);
        let stats = heap.stats(10, None);
        assert!(stats.total_allocated_bytes > 100_000, "a sample of the host counts for many");
        assert_eq!((stats.sample_bytes, stats.memory), (Some(1 << 19), Memory::Host));
        let short = |device: &DeviceStats| (device.allocations, device.peak_bytes, device.live_bytes);
        let figures: Vec<_> = stats.devices.iter().map(short).collect();
        let (mib, most) = (1 << 20, (1 << 20) + 4096 + 512);
        assert_eq!(figures, [(3, most, most), (1, 2 * mib, 0), (1, 8 * mib, 8 * mib)]);
        assert_eq!((stats.devices[1].top_at, stats.devices[1].top[0].bytes), ("peak", 2 * mib));
        assert_eq!(stats.devices[0].peak_reserved_bytes, None);
        // The line of the program is responsible, not the library's, and no mark where there are frames.
        let places: Vec<_> = stats.devices[0].top.iter().map(|top| (&top.function[..], top.line)).collect();
        assert_eq!(places, [("step", 10), ("<backward of several callers>", 0)]);
        select(&mut heap, cuda(0));
        let stats = heap.stats_by(GroupBy::OwnLine, 10, None);
        assert_eq!((stats.total_allocations, stats.sample_bytes, stats.peak_bytes), (3, None, most));
        assert_eq!(stats.by_allocator[0].allocator, "device");
        let own: Vec<_> = stats.top_by_size.iter().map(|top| &top.function[..]).collect();
        assert_eq!(own, ["linear", "step", "<backward of several callers>"]);
        let expected = [("<backward of several callers>", 512), ("<backward>", 4096), ("linear", mib)];
        let expected = expected.map(|(name, bytes)| (name.to_owned(), bytes));
        assert_eq!(held(&heap, Mode::Peak), BTreeMap::from(expected));
        select(&mut heap, "cuda:1/driver".parse().unwrap());
        assert_eq!(heap.live().bytes, 8 * mib);
        heap.select(Selection::All).unwrap();
        let all = heap.profile(Mode::Leaks, None).held;
        let roots = all.by_function().into_iter().filter(|entry| names.contains(&entry.frame.function));
        let roots: BTreeMap<String, u64> =
            roots.map(|entry| (entry.frame.function, entry.total.bytes)).collect();
        assert_eq!((roots["cuda:0"], roots["cuda:1/driver"], roots.len()), (most, 8 * mib, 3));
        let refused = heap.select(Selection::One(cuda(7))).unwrap_err();
        assert!(matches!(refused, HeapError::NoMemory { .. }));
        assert!(refused.to_string().contains("no records of cuda:7: it has host, cuda:0"), "{refused}");
    }
}

#[test]
fn a_recording_of_devices_alone_is_asked_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let (list, counted) = (reports::reports("graphs"), reports::counted("graphs"));
    reports::write(&path, &list, &counted, false);
    let heap = read(&path);
    assert_eq!((heap.memories(), heap.memory()), (vec![cuda(0)], cuda(0)));
    assert_eq!(heap.stats(3, None).peak_bytes, counted["allocated_bytes.all.peak"]);
    assert_eq!(heap.device_reports(), Some(true));
    let most = heap.curve().iter().map(|point| point.max_bytes).max();
    assert_eq!(most, counted["allocated_bytes.all.peak"].as_u64());
    let reserved = heap.reserved_curve().iter().map(|point| point.max_bytes).max();
    assert_eq!(reserved, counted["reserved_bytes.all.peak"].as_u64());
}

/// A recording that begins when the program has run for a while.
#[test]
fn memory_from_before_the_recording_counts_until_it_is_freed() {
    let (list, counted) = (reports::reports("train"), reports::counted("train"));
    let late = &list[1000..];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 1, 0);
    writer.time(0, 1000);
    writer.define_device(0, 0, [1, 0, 0]);
    let end = counted["allocated_bytes.all.current"].as_u64().unwrap();
    let mut before = None;
    let (mut reserved, mut most) = (0, 0);
    for report in late {
        if std::mem::replace(&mut reserved, report.reserved) != report.reserved {
            writer.device_totals(0, 0, report.allocated, report.reserved);
        }
        let address = device_address(0, report.address);
        before.get_or_insert(match report.kind {
            'a' => report.allocated - report.size,
            _ => report.allocated + report.size,
        });
        match report.kind {
            'a' => writer.allocate(0, kind::DEVICE_ALLOCATION, address, report.size, (0, 0)),
            _ => writer.device_free(0, address, report.size),
        }
        most = most.max(report.allocated);
    }
    let last = late.last().unwrap().allocated;
    for step in ["live", "folded"] {
        if step == "folded" {
            let fold = Some(Box::<Aggregate>::default() as Box<_>);
            let options = Options { aggregate: true, fold, ..Options::default() };
            Compactor::open(&path, options).unwrap().finish(json!({})).unwrap();
        }
        let mut heap = read(&path);
        select(&mut heap, cuda(0));
        let device = &heap.stats(5, None).devices[0];
        assert_eq!(Some(device.before_recording_bytes), before, "{step}");
        assert_eq!((device.peak_bytes, device.live_bytes, device.unknown_frees), (most, last, 0), "{step}");
        let peak = held(&heap, Mode::Peak);
        assert_eq!(heap.profile(Mode::Peak, None).held.whole().bytes, most, "{step}");
        assert!(peak["<before recording>"] > 0 && end > 0, "{step}");
        assert_eq!(heap.profile(Mode::End, None).held.whole().bytes, last, "{step}");
    }
}

/// When blocks came and went is known of a device as of the host.
#[test]
fn lifetimes_of_a_device_come_from_its_own_changes() {
    let (list, counted) = (reports::reports("amp"), reports::counted("amp"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    reports::write(&path, &list, &counted, false);
    let capture = Capture::open(&path).unwrap();
    let curve = capture
        .read(HeapReadOptions { curve_points: 40, ..HeapReadOptions::default() })
        .unwrap()
        .curve()
        .to_vec();
    let moments = curve.iter().map(|point| point.max_change).collect();
    let device_moments = vec![(cuda(0), moments)];
    let heap = capture.read(HeapReadOptions { device_moments, ..HeapReadOptions::default() }).unwrap();
    let profile = heap.profile(Mode::Peak, None);
    assert!(profile.moments.len() > 20);
    for (number, place) in profile.moments.iter().enumerate() {
        let lives = profile.lifetimes.iter();
        let there = lives.filter(|life| (life.birth..life.death).contains(&(number as u32)));
        let bytes: u64 = there.map(|life| life.weight.bytes).sum();
        assert_eq!(bytes, curve[*place].max_bytes, "moment {number}");
    }
}

/// The capture in `data` was sealed by the release that first had device records: it must be read for ever.
#[test]
fn a_stored_capture_of_host_and_device_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/devices.bin");
    let heap = read(&path);
    check(&heap, &reports::counted("amp"), "stored");
    assert_eq!((heap.memory(), heap.live().bytes), (Memory::Host, 9_000_000));
}

/// Another thread frees a block and its address is given out again within one tick of the clock.
#[test]
fn blocks_that_threads_hand_over_within_a_tick_are_put_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 2, 0);
    let address = device_address(0, 0x7f00_0000);
    writer.time(0, 1000);
    writer.time(1, 1000);
    writer.define_device(1, 0, [1, 0, 0]);
    // In truth: 0 allocates, 1 frees, 1 allocates, 0 frees.
    writer.allocate(0, kind::DEVICE_ALLOCATION, address, 512, (0, 0));
    writer.device_free(1, address, 0);
    writer.allocate(1, kind::DEVICE_ALLOCATION, address, 1024, (0, 0));
    writer.device_free(0, address, 0);
    let heap = read(&path);
    let device = &heap.stats(1, None).devices[0];
    assert_eq!((device.peak_bytes, device.live_bytes, device.unknown_frees), (1024, 0, 0));
    assert_eq!(device.device, cuda(0));
}

/// A file may say anything.
#[test]
fn nonsense_about_devices_is_survived() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut writer = Writer::create(&path, 1, 0);
    writer.time(0, 1000);
    for what in definition::DEVICE..=definition::DEVICE_REPORTS {
        for id in [0, 63, 64, u64::MAX] {
            for length in [0, 1, 3, 16, 32, 200] {
                writer.define(0, what, id, &vec![0xff; length]);
            }
        }
    }
    let odd = writer.mark_node(0, u64::from(u32::MAX), 0);
    let odder = writer.mark_node(0, u64::MAX, odd);
    writer.allocate(0, kind::DEVICE_ALLOCATION, 24, u64::MAX, (odder, 9));
    writer.allocate(0, kind::DEVICE_ALLOCATION, u64::MAX, u64::MAX, (7, 7));
    writer.allocate(0, kind::MALLOC, u64::MAX, 5, (odder, 0));
    writer.device_free(0, 24, u64::MAX);
    writer.free(0, kind::FREE, u64::MAX);
    for step in 0..2 {
        if step == 1 {
            let fold = Some(Box::<Aggregate>::default() as Box<_>);
            let options = Options { aggregate: true, fold, ..Options::default() };
            Compactor::open(&path, options).unwrap().finish(json!({})).unwrap();
        }
        let mut heap = read(&path);
        for memory in heap.memories() {
            select(&mut heap, memory);
            heap.stats(5, None);
            heap.profile(Mode::Peak, None);
        }
    }
}
