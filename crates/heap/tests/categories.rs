//! What device memory is for, and how many steps are left, by the records of a small training.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../../capture/tests/common/writer.rs"]
mod writer;

use std::path::Path;

use serde_json::json;
use stormlog_capture::record::{definition, device_address, kind, mark};
use stormlog_capture::{Compactor, Options};
use stormlog_heap::{Aggregate, Capture, DeviceStats, HeapReadOptions};
use writer::Writer;

const MIB: u64 = 1 << 20;
const TORCH: &str = "/v/lib/python3.12/site-packages/torch";

/// A training: weights, `steps` steps that keep `leak` bytes each, and an end in the middle of a backward pass.
struct Training {
    writer: Writer,
    next: u64,
    time: u64,
    /// Nodes of the program's thread.
    parameters: u32,
    forward: u32,
    optimizer: u32,
    data: u32,
    loader: u32,
    first_gradient: u32,
    /// Of the engine's.
    backward: u32,
}

impl Training {
    fn start(path: &Path) -> Self {
        let mut writer = Writer::create(path, 2, 0);
        let module = format!("{TORCH}/nn/modules/module.py");
        let codes = [
            ("main", "/home/me/train.py".to_owned()),
            ("Module._apply", module.clone()),
            ("Module.to.<locals>.convert", module.clone()),
            ("Module._call_impl", module),
            ("Net.forward", "/home/me/model.py".to_owned()),
            ("Adam._init_group", format!("{TORCH}/optim/adam.py")),
            ("_engine_run_backward", format!("{TORCH}/autograd/graph.py")),
            ("collate", format!("{TORCH}/utils/data/_utils/collate.py")),
            ("_make_grads", format!("{TORCH}/autograd/__init__.py")),
        ];
        for stream in 0..2 {
            for (id, (name, file)) in codes.iter().enumerate() {
                writer.define_code(stream, 10 + id as u64, name, file, 5);
            }
        }
        let stack = |writer: &mut Writer, stream: usize, codes: &[u64]| {
            codes.iter().fold(0, |parent, code| writer.python_node(stream, *code, 0, parent))
        };
        let parameters = stack(&mut writer, 0, &[10, 11, 12]);
        let forward = stack(&mut writer, 0, &[10, 13, 14]);
        let optimizer = stack(&mut writer, 0, &[10, 15]);
        let data = stack(&mut writer, 0, &[10]);
        let loader = stack(&mut writer, 0, &[10, 17]);
        let first_gradient = stack(&mut writer, 0, &[10, 18]);
        let caller = stack(&mut writer, 1, &[10, 16]);
        let backward = writer.mark_node(1, mark::BACKWARD, caller);
        for stream in 0..2 {
            writer.define_device(stream, 0, [1, 0, 0]);
        }
        Training {
            writer,
            next: 0x1000,
            time: 0,
            parameters,
            forward,
            optimizer,
            data,
            loader,
            first_gradient,
            backward,
        }
    }

    fn take(&mut self, stream: usize, node: u32, bytes: u64) -> u64 {
        self.time += 1000;
        self.writer.time(stream, self.time);
        let address = device_address(0, self.next);
        self.next += bytes;
        self.writer.allocate(stream, kind::DEVICE_ALLOCATION, address, bytes, (node, 0));
        address
    }

    fn free(&mut self, stream: usize, address: u64) {
        self.time += 1000;
        self.writer.time(stream, self.time);
        self.writer.free(stream, kind::DEVICE_FREE, address);
    }
}

fn stats(path: &Path) -> DeviceStats {
    let heap = Capture::open(path).unwrap().read(HeapReadOptions::default()).unwrap();
    heap.stats(5, None).devices.remove(0)
}

fn train(path: &Path, steps: u64, leak: u64) -> Training {
    let mut training = Training::start(path);
    let (parameters, forward, optimizer) = (training.parameters, training.forward, training.optimizer);
    let (data, loader, backward) = (training.data, training.loader, training.backward);
    for size in [40, 20, 4] {
        training.take(0, parameters, size * MIB);
    }
    training.take(0, data, 3 * MIB);
    for step in 0..steps {
        let input = training.take(0, loader, 2 * MIB);
        let activations: Vec<u64> = (0..4).map(|_| training.take(0, forward, 6 * MIB)).collect();
        if leak > 0 {
            training.take(0, forward, leak);
        }
        // The gradient of the loss is the caller's own, before the engine begins.
        let first = training.take(0, training.first_gradient, 512);
        let gradients: Vec<u64> = [40, 20, 4].map(|size| training.take(1, backward, size * MIB)).to_vec();
        activations.into_iter().chain([first]).for_each(|address| training.free(1, address));
        if step == 0 {
            for size in [40, 40, 20, 20, 4, 4] {
                training.take(0, optimizer, size * MIB);
            }
        }
        gradients.into_iter().for_each(|address| training.free(0, address));
        training.free(0, input);
    }
    training
}

/// The end of a cached block stays with its new owner: a parameter may have a larger block than its gradient, and the other way round.
#[test]
fn gradients_are_known_by_sizes_that_differ_by_the_rest_of_a_block() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut training = Training::start(&path);
    let (parameters, backward) = (training.parameters, training.backward);
    for size in [94 * MIB, 94 * MIB, 6 * MIB, 4096] {
        training.take(0, parameters, size);
    }
    for size in [94 * MIB - 262_144, 94 * MIB, 6 * MIB + 700_000, 8 * MIB, 4608] {
        training.take(1, backward, size);
    }
    training.writer.end();
    let found = stats(&path);
    assert_eq!(found.categories["gradients"].bytes, 188 * MIB - 262_144 + 6 * MIB + 700_000);
    assert_eq!(found.categories["backward_temporaries"].bytes, 8 * MIB + 4608, "another size");
}

#[test]
fn live_memory_is_categorised_by_stacks_and_sizes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut training = train(&path, 3, 0);
    let (forward, backward, loader) = (training.forward, training.backward, training.loader);
    training.take(0, loader, 2 * MIB);
    training.take(0, forward, 6 * MIB);
    // In the middle of the pass: two gradients, what it needs for a moment, and the engine's own workspace.
    training.take(1, backward, 32 * MIB);
    // The second gradient is in a block that PyTorch did not split to size.
    for size in [40 * MIB, 20 * MIB + MIB / 4, 9 * MIB] {
        training.take(1, backward, size);
    }
    training.writer.end();
    let expected = [
        ("activations", 6),
        ("backward_temporaries", 9),
        ("data", 3),
        ("gradients", 60),
        ("inputs", 2),
        ("optimizer_state", 128),
        ("parameters", 64),
        ("workspaces", 32),
    ];
    let check = |step: &str| {
        let found = stats(&path);
        let words: Vec<(&str, u64)> =
            found.categories.iter().map(|(name, amount)| (*name, amount.bytes / MIB)).collect();
        assert_eq!(words, expected, "{step}");
        let whole: u64 = found.categories.values().map(|amount| amount.bytes).sum();
        assert_eq!(whole, found.live_bytes, "{step}");
        assert_eq!((found.steps, found.growth_bytes_per_step), (4, None), "{step}");
    };
    check("live");
    let fold = Some(Box::<Aggregate>::default() as Box<_>);
    let options = Options { aggregate: true, fold, ..Options::default() };
    Compactor::open(&path, options).unwrap().finish(json!({"exit_code": 0})).unwrap();
    check("folded");
}

#[test]
fn steps_to_the_devices_end_are_counted_while_memory_grows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    train(&path, 40, 5 * MIB).writer.end();
    let mut found = stats(&path);
    assert_eq!((found.steps, found.growth_bytes_per_step), (40, Some(5 * MIB)));
    found.forecast(found.peak_bytes + 52 * MIB);
    assert_eq!(found.steps_to_oom, Some(10));
    let path = directory.path().join("steady.bin");
    train(&path, 40, 0).writer.end();
    let mut steady = stats(&path);
    steady.forecast(u64::MAX);
    assert_eq!((steady.steps, steady.steps_to_oom), (40, None));
}

#[test]
fn categories_are_those_of_the_end_of_the_programs_own_code() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heap.bin");
    let mut training = Training::start(&path);
    let weights = training.take(0, training.parameters, 40 * MIB);
    training.writer.define(0, definition::CODE_ENDED, 0, &[]);
    training.free(0, weights);
    training.writer.end();
    let found = stats(&path);
    assert_eq!(found.categories["parameters"].bytes, 40 * MIB);
    assert_eq!(found.live_bytes, 40 * MIB);
}
