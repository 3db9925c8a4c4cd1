//! Damaged profiles: cut anywhere, with any byte changed, or random behind a known head. Each is read or refused with a sentence, and never panics.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Read;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use stormlog_import::{About, Format, Held, ImportError, Module, Node, Sink, Site, Step, read, recognise};
use stormlog_model::memory::Memory;

/// Takes everything and counts nodes, so that a reader that makes endless stacks is found.
#[derive(Default)]
struct Nothing {
    nodes: u32,
}

impl Sink for Nothing {
    fn about(&mut self, _: About) {}
    fn module(&mut self, _: Module<'_>) {}
    fn node(&mut self, parent: Node, _: Step<'_>) -> Node {
        assert!(parent <= self.nodes, "a stack inside one that is not there");
        self.nodes += 1;
        assert!(self.nodes < 10_000_000);
        self.nodes
    }
    fn hold(&mut self, site: Site<'_>, _: Held) {
        assert!(site.node <= self.nodes);
    }
    fn level(&mut self, _: u64, _: u64) {}
    fn allocate(&mut self, site: Site<'_>, _: u64, _: u64) {
        assert!(site.node <= self.nodes);
    }
    fn free(&mut self, _: Memory, _: u64, _: u64, _: u64) {}
    fn allocator(&mut self, _: Memory, _: u64, _: u64) {}
    fn at(&mut self, _: u64) {}
    fn resident(&mut self, _: u64) {}
    fn note(&mut self, _: String) {}
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

const FILES: [(&str, Format); 11] = [
    ("go.pb.gz", Format::Pprof),
    ("jax.pb.gz", Format::Pprof),
    ("heaptrack.zst", Format::Heaptrack),
    ("massif.out.gz", Format::Massif),
    ("jemalloc.heap.gz", Format::Jemalloc),
    ("gperftools.heap.gz", Format::Gperftools),
    ("kineto-cpu.json.gz", Format::Kineto),
    ("kineto-gpu.json.gz", Format::Kineto),
    ("heapprofd.pftrace", Format::Perfetto),
    ("sanitizer.txt", Format::SanitizerText),
    ("sanitizer.xml", Format::SanitizerXml),
];

/// The content of a fixture, decompressed: a changed byte reaches the parser, not the checksum.
fn plain(name: &str) -> Vec<u8> {
    let bytes = std::fs::read(data().join(name)).unwrap();
    let mut plain = Vec::new();
    let read = match name.rsplit('.').next() {
        Some("gz") => flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain),
        Some("zst") => ruzstd::decoding::StreamingDecoder::new(&bytes[..]).unwrap().read_to_end(&mut plain),
        _ => (&bytes[..]).read_to_end(&mut plain),
    };
    read.unwrap();
    plain
}

fn read_bytes(bytes: &[u8], format: Format) -> Result<(), ImportError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile");
    std::fs::write(&path, bytes).unwrap();
    if let Some(other) = recognise(&path) {
        let _ = read(&path, other, &mut Nothing::default());
    }
    read(&path, format, &mut Nothing::default())
}

#[test]
fn fixtures_are_recognised_by_content_and_read() {
    for (name, format) in FILES {
        let path = data().join(name);
        assert_eq!(recognise(&path), Some(format), "{name}");
        read(&path, format, &mut Nothing::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn damaged_profile_is_refused_with_its_place_and_what_to_do() {
    let sentence = |bytes: &[u8], format| read_bytes(bytes, format).unwrap_err().to_string();
    let text = sentence(b"heap profile: 1: 2 [1: 2] @ heapprofile\nnonsense\n", Format::Gperftools);
    assert!(
        text.contains("is a damaged gperftools heap profile: a stack is damaged in line 2; copy it again"),
        "{text}"
    );
    let text = sentence(b"{\"traceEvents\": []}", Format::Kineto);
    assert!(
        text.contains("without memory events: record with `torch.profiler.profile(profile_memory=True"),
        "{text}"
    );
    let text = sentence(b"{\"traceEvents\": [{\"ph\": \"X\"", Format::Kineto);
    assert!(text.contains("its JSON ends early at its end"), "{text}");
    let text = sentence(b"v 10400 3\nX ./a\nm 1 2 3\n", Format::Heaptrack);
    assert!(text.contains("run `heaptrack --interpret` on it"), "{text}");
    let text =
        sentence(b"========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", Format::SanitizerText);
    assert!(text.contains("--leak-check full"), "{text}");
    let whole = std::fs::read(data().join("kineto-cpu.json.gz")).unwrap();
    let text = sentence(&whole[..300], Format::Kineto);
    assert!(text.contains("its compressed data ends early"), "{text}");
    let cpu = [0x0a, 4, 8, 1, 16, 2, 0x32, 0, 0x32, 3, b'c', b'p', b'u', 0x32, 2, b'n', b's'];
    let text = sentence(&cpu, Format::Pprof);
    assert!(text.contains("without a value in bytes (it has cpu in ns)"), "{text}");
}

#[test]
fn cut_compressed_profile_does_not_panic() {
    for (name, format) in FILES {
        let bytes = std::fs::read(data().join(name)).unwrap();
        for length in (0..bytes.len()).step_by(149) {
            let _ = read_bytes(&bytes[..length], format);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn garbled_profile_does_not_panic(
        which in 0..FILES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let (name, format) = FILES[which];
        let mut bytes = plain(name);
        for (place, byte) in changes {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = read_bytes(&bytes, format);
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), which in 0..FILES.len()) {
        let _ = read_bytes(&bytes, FILES[which].1);
    }
}
