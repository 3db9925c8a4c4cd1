//! Graphics cards from hand-made trees: this machine has none. And all sources together on the real machine.

#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use stormlog_collect::drm::process_clients;
use stormlog_collect::{
    Collector, Combined, ExternalCollector, ExternalCounters, Gpu, HealthState, MonitoredCollector, Pushed,
    Roots, bytes_held, discover_gpus,
};
use stormlog_model::{Counter, Support};

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn amd_machine() -> (tempfile::TempDir, Roots) {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    for (card, pci, used) in [("card1", "0000:03:00.0", "1000"), ("card0", "0000:83:00.0", "0")] {
        let device = format!("sys/class/drm/{card}/device");
        let uevent = format!("DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME={pci}\n");
        write(root, &format!("{device}/uevent"), &uevent);
        write(root, &format!("{device}/mem_info_vram_total"), "4000\n");
        write(root, &format!("{device}/mem_info_vram_used"), &format!("{used}\n"));
    }
    write(root, "sys/class/drm/card0-DP-1/device/mem_info_vram_total", "1\n");
    write(root, "sys/class/drm/renderD128/device/mem_info_vram_total", "1\n");
    // A display chip without memory of its own, and NVIDIA's driver: both silent.
    write(root, "sys/class/drm/card2/device/uevent", "DRIVER=ast\n");
    write(root, "sys/class/drm/card3/device/uevent", "DRIVER=nvidia\n");
    write(root, "sys/class/drm/card4/device/uevent", "DRIVER=xe\nPCI_SLOT_NAME=0000:C0:00.0\n");
    write(root, "sys/class/drm/card4/device/tile0/physical_vram_size_bytes", "70\n");
    write(root, "sys/class/drm/card4/device/tile1/physical_vram_size_bytes", "30\n");
    let roots = Roots { proc: root.join("proc"), sys: root.join("sys") };
    (temporary, roots)
}

/// The cards of the hand-made tree, under their numbers; real GPUs of this machine come before them.
fn devices(roots: &Roots) -> Vec<Gpu> {
    let gpus = discover_gpus(roots).into_iter();
    gpus.filter(|gpu| gpu.identity().driver.as_deref() != Some("nvidia")).collect()
}

#[test]
fn cards_are_read_from_a_stand_in_sysfs() {
    let (_temporary, roots) = amd_machine();
    let mut cards = devices(&roots);
    let names: Vec<&str> = cards.iter().filter_map(|card| card.identity().pci.as_deref()).collect();
    assert_eq!(names, ["0000:03:00.0", "0000:83:00.0", "0000:c0:00.0"]);
    let sample = cards[0].sample().unwrap().sample;
    assert_eq!(
        (sample.device_id, sample.used, sample.free, sample.total),
        (cards[0].identity().device_id, Some(1000), Some(3000), Some(4000))
    );
    assert_eq!(sample.allocated, None);
    assert_eq!(cards[1].sample().unwrap().sample.used, Some(0));
    let identity = cards[0].identity();
    assert!(!identity.unified && identity.parent_uuid.is_none());
    let numbers: Vec<i64> = discover_gpus(&roots).iter().map(|gpu| gpu.identity().device_id).collect();
    assert_eq!(numbers, (0..numbers.len() as i64).collect::<Vec<i64>>());
    assert_eq!(cards[0].capabilities().backend, "rocm");
    // Intel's driver reports the size only: the rest is unknown, not 0.
    let sample = cards[2].sample().unwrap().sample;
    assert_eq!((sample.total, sample.used, sample.free), (Some(100), None, None));
    assert!(!cards[2].capabilities().supports.supports(Support::DeviceUsed));
    assert!(cards[2].capabilities().partial_fields(&sample.into()).is_empty());
}

#[test]
fn a_card_that_stops_answering_degrades_from_a_stand_in_sysfs() {
    let (_temporary, roots) = amd_machine();
    let used = roots.sys.join("class/drm/card1/device/mem_info_vram_used");
    let mut card = MonitoredCollector::new(devices(&roots).remove(0));
    assert_eq!(card.poll(0).sample.unwrap().used, Some(1000));
    fs::write(&used, "banana\n").unwrap();
    let sample = card.poll(1).sample.unwrap();
    assert_eq!((sample.used, sample.free, sample.total), (None, None, Some(4000)));
    assert_eq!(card.health().partial_fields, ["device_used_bytes", "device_free_bytes"]);
    fs::write(&used, "2000\n").unwrap();
    assert_eq!(card.poll(2).sample.unwrap().used, Some(2000));
    assert_eq!(card.health().state, HealthState::Healthy);
}

#[test]
fn clients_are_counted_once_from_a_stand_in_proc() {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    let info = |client: u32, vram: u32| {
        format!(
            "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t{client}\ndrm-memory-vram:\t{vram} KiB\n"
        )
    };
    fs::create_dir_all(root.join("7/fd")).unwrap();
    for (descriptor, target, text) in [
        (3, "/dev/dri/renderD128", info(1, 100)),
        (4, "/dev/dri/renderD128", info(1, 100)),
        (5, "/dev/dri/card0", info(2, 50)),
        (6, "/tmp/innocent", info(3, 999)),
    ] {
        symlink(target, root.join(format!("7/fd/{descriptor}"))).unwrap();
        write(root, &format!("7/fdinfo/{descriptor}"), &text);
    }
    symlink("/dev/dri/card0", root.join("7/fd/9")).unwrap();
    let roots = Roots { proc: root.into(), sys: root.into() };
    let clients = process_clients(&roots, 7).unwrap();
    let sum: u64 = clients.iter().filter_map(|client| client.device_bytes()).sum();
    assert_eq!((clients.len(), sum), (2, 150 << 10));
    assert!(process_clients(&roots, 8).unwrap_err().is_gone());
    // The card that these descriptors lead to knows its holders; another one is not held.
    let (_machine, machine_roots) = amd_machine();
    let roots = Roots { proc: root.into(), sys: machine_roots.sys };
    let cards = devices(&roots);
    assert_eq!(cards[0].held_by(&[7, 8]), Some(vec![(7, Some(150 << 10))]));
    assert_eq!(cards[1].held_by(&[7, 8]), Some(vec![]));
    assert_eq!(bytes_held(&cards, &[7]), Some(150 << 10));
    assert_eq!(bytes_held(&cards, &[8]), None);
    assert!(cards[0].processes().is_err());
    assert_eq!(process_clients(&Roots::default(), std::process::id()).unwrap(), []);
}

#[test]
fn used_bytes_come_from_the_driver_and_allocated_bytes_from_the_framework() {
    let (_temporary, roots) = amd_machine();
    let counters = Arc::new(ExternalCounters::default());
    let allocator = ExternalCollector::new(
        Arc::clone(&counters),
        0,
        "rocm",
        "stormlog.rocm_tracker",
        "torch.cuda.memory_stats",
        &[Counter::Allocated, Counter::Reserved],
    );
    let mut both = MonitoredCollector::new(Combined::new(Box::new(devices(&roots).remove(0)), allocator));
    // Before the first push the driver's side is there alone.
    let sample = both.poll(0).sample.unwrap();
    assert_eq!((sample.used, sample.reserved), (Some(1000), None));
    assert_eq!(both.health().partial_fields, ["allocator_allocated_bytes", "allocator_reserved_bytes"]);
    counters.push(&Pushed {
        at_ns: 5,
        allocated: Some(600),
        reserved: Some(700),
        used: Some(700),
        ..Pushed::default()
    });
    let sample = both.poll(1).sample.unwrap();
    assert_eq!((sample.used, sample.reserved, sample.pushed_at_ns), (Some(1000), Some(700), Some(5)));
    assert_eq!(both.health().state, HealthState::Healthy);
    // With the card gone the framework's own idea of "used" does not take its place.
    fs::remove_dir_all(roots.sys.join("class")).unwrap();
    let capabilities = both.collector().capabilities();
    assert!(capabilities.supports.supports(Support::FragmentationAnalysis));
    assert_eq!(capabilities.telemetry_collector, "stormlog.rocm_tracker");
}

#[test]
fn this_machine_is_searched_without_failure() {
    for mut gpu in discover_gpus(&Roots::default()) {
        assert!(gpu.identity().device_id >= 0);
        let sample = gpu.sample().unwrap().sample;
        assert_eq!(sample.device_id, gpu.identity().device_id);
    }
}
