//! What readers hand over, figure by figure, of files by the tools themselves and of small traces written here.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};

use stormlog_import::{About, Format, Held, Module, Node, Sink, Site, Step, read};
use stormlog_model::memory::Memory;

/// Everything that matters to a figure.
#[derive(Default)]
struct Figures {
    /// Parent and function of each node but the root.
    nodes: Vec<(Node, String)>,
    held: Vec<(Node, Held)>,
    allocated: Vec<(Node, u64)>,
    notes: Vec<String>,
}

impl Sink for Figures {
    fn about(&mut self, _: About) {}
    fn module(&mut self, _: Module<'_>) {}
    fn node(&mut self, parent: Node, step: Step<'_>) -> Node {
        let name = match step {
            Step::Code { function, .. } => function.to_owned(),
            Step::Address(address) => format!("{address:#x}"),
        };
        self.nodes.push((parent, name));
        self.nodes.len() as Node
    }
    fn hold(&mut self, site: Site<'_>, held: Held) {
        self.held.push((site.node, held));
    }
    fn level(&mut self, _: u64, _: u64) {}
    fn allocate(&mut self, site: Site<'_>, _: u64, size: u64) {
        self.allocated.push((site.node, size));
    }
    fn free(&mut self, _: Memory, _: u64, _: u64, _: u64) {}
    fn allocator(&mut self, _: Memory, _: u64, _: u64) {}
    fn at(&mut self, _: u64) {}
    fn resident(&mut self, _: u64) {}
    fn note(&mut self, note: String) {
        self.notes.push(note);
    }
}

impl Figures {
    fn of(path: &Path, format: Format) -> Self {
        let mut figures = Figures::default();
        read(path, format, &mut figures).unwrap();
        figures
    }

    fn of_text(text: &str, format: Format) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        std::fs::write(&path, text).unwrap();
        Figures::of(&path, format)
    }

    /// The functions of a stack, the outermost first.
    fn stack(&self, mut node: Node) -> Vec<&str> {
        let mut names = Vec::new();
        while node != 0 {
            let (parent, name) = &self.nodes[node as usize - 1];
            names.insert(0, name.as_str());
            node = *parent;
        }
        names
    }
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn kineto_stack_has_no_call_that_ended_within_a_longer_annotation() {
    let slice = |name: &str, category: &str, start: u32, duration: u32| {
        format!(
            "{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{name}\",\"tid\":1,\"ts\":{start},\"dur\":{duration}}}"
        )
    };
    let events = [
        slice("a.py(1): step", "python_function", 0, 100),
        slice("a.py(5): __enter__", "python_function", 1, 2),
        // Begun in `__enter__`, it lasts until `__exit__`.
        slice("Optimizer.step", "user_annotation", 2, 90),
        slice("aten::empty", "cpu_op", 50, 10),
        "{\"ph\":\"i\",\"name\":\"[memory]\",\"tid\":1,\"ts\":55,\"args\":{\"Bytes\":8,\"Addr\":1}}"
            .to_owned(),
    ];
    let figures = Figures::of_text(&format!("{{\"traceEvents\":[{}]}}", events.join(",")), Format::Kineto);
    assert_eq!(figures.allocated.len(), 1);
    assert_eq!(figures.stack(figures.allocated[0].0), ["step", "Optimizer.step", "aten::empty"]);
}

#[test]
fn massif_peak_is_the_largest_snapshot_although_it_has_no_stacks() {
    let figures = Figures::of(&data("massif-pages.out.gz"), Format::Massif);
    let sum = |part: fn(&Held) -> u64| figures.held.iter().map(|(_, held)| part(held)).sum::<u64>();
    // The last snapshot of the file is the largest; the detailed one that massif calls the peak has 14,356,480 bytes.
    assert_eq!((sum(|held| held.peak.bytes), sum(|held| held.live.bytes)), (14_864_384, 14_864_384));
    let beyond = |(node, held): &&(Node, Held)| {
        held.peak.bytes > 0 && figures.stack(*node) == ["<stack not recorded>"]
    };
    let beyond: Vec<u64> = figures.held.iter().filter(beyond).map(|(_, held)| held.peak.bytes).collect();
    assert_eq!(beyond, [14_864_384 - 14_356_480]);
    assert!(figures.notes.iter().any(|note| note.starts_with("massif marks a peak only where")));
}

#[test]
fn jemalloc_stack_has_no_frame_of_the_allocator() {
    let profile = "heap_v2/1\n@ 0x2010 0x2020 0x1010 0x1020\n  t*: 1: 64 [0: 0]\n@ 0x2010\n  t*: 1: 8 [0: 0]\n\
                   MAPPED_LIBRARIES:\n1000-2000 r-xp 00000000 00:00 1 /app/demo\n\
                   2000-3000 r-xp 00000000 00:00 2 /usr/lib/libjemalloc.so.2\n";
    let figures = Figures::of_text(profile, Format::Jemalloc);
    let stacks: Vec<_> = figures.held.iter().map(|(node, _)| figures.stack(*node)).collect();
    assert_eq!(stacks, [vec!["0x1020", "0x1010"], vec!["0x2010"]]);
}
