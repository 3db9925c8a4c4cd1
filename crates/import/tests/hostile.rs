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

const FILES: [(&str, Format); 12] = [
    ("go.pb.gz", Format::Pprof),
    ("jax.pb.gz", Format::Pprof),
    ("heaptrack.zst", Format::Heaptrack),
    ("massif.out.gz", Format::Massif),
    ("massif-pages.out.gz", Format::Massif),
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
fn go_profiles_of_other_kinds_are_named_with_what_to_save_instead() {
    let sentence = |bytes: &[u8], format| read_bytes(bytes, format).unwrap_err().to_string();
    let text = b"heap profile: 1: 8 [1: 8] @ heap/1048576\n1: 8 [1: 8] @ 0x40f6ce\n#\t0x548b06\tmain.fill+0xc6\tbig.go:8\n";
    let text = sentence(text, Format::Gperftools);
    assert!(text.contains("that Go wrote as text, which is not read; save it without `debug=1`"), "{text}");
}

/// A small file with more entries than are kept: `head`, then `unit` so often that `bytes` are exceeded where each takes `kept` bytes.
fn with_many(head: &[u8], unit: &[u8], kept: usize) -> Vec<u8> {
    let count = (300 << 20) / kept;
    [head, &unit.repeat(count)].concat()
}

#[test]
fn file_that_takes_too_much_memory_is_refused() {
    let heaptrack = b"v 10400 3\nX ./a\ns 1 a\ni 1 1\nt 1 0\na 10 1\n";
    let pprof = [0x0a, 4, 8, 1, 16, 2];
    // A packet of one dump of a process; the lengths are of all that follows.
    let samples = with_many(&[], &[0x12, 0], 40);
    let field = |number: u8, content: &[u8]| {
        let (mut head, mut length) = (vec![number], content.len());
        // Fields from 16 on have a second byte.
        head.extend((number == 0xaa).then_some(2));
        while length >= 0x80 {
            head.push(length as u8 | 0x80);
            length >>= 7;
        }
        head.push(length as u8);
        [&head, content].concat()
    };
    let perfetto = field(0x0a, &field(0xaa, &field(0x2a, &samples)));
    for (bytes, format) in [
        (with_many(heaptrack, b"+ 0\n", 40), Format::Heaptrack),
        (with_many(&pprof, &[0x32, 0], 40), Format::Pprof),
        (perfetto, Format::Perfetto),
    ] {
        let text = read_bytes(&bytes, format).unwrap_err().to_string();
        assert!(text.ends_with("takes more than 256 MiB of memory to read; record a shorter time"), "{text}");
    }
}

/// A database of two pages of 512 bytes, whose schema has this page.
fn database(cells: &[(u16, &[u8])], pointers: &[u16]) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    bytes[..16].copy_from_slice(b"SQLite format 3\0");
    bytes[16..18].copy_from_slice(&512u16.to_be_bytes());
    bytes[100] = 0x0d;
    bytes[103..105].copy_from_slice(&(pointers.len() as u16).to_be_bytes());
    for (place, pointer) in pointers.iter().enumerate() {
        bytes[108 + 2 * place..][..2].copy_from_slice(&pointer.to_be_bytes());
    }
    for (at, cell) in cells {
        bytes[usize::from(*at)..][..cell.len()].copy_from_slice(cell);
    }
    bytes
}

#[test]
fn database_whose_rows_share_bytes_or_go_in_a_circle_is_refused() {
    let sentence = |bytes: &[u8]| read_bytes(bytes, Format::NsightSystems).unwrap_err().to_string();
    // A row of 2^24 bytes: its length, its number, 39 bytes of it, then page 2, whose next page is page 2.
    let mut endless = database(&[(300, &[0x88, 0x80, 0x80, 0x00, 1])], &[300]);
    endless[344..348].copy_from_slice(&2u32.to_be_bytes());
    endless[512..516].copy_from_slice(&2u32.to_be_bytes());
    let text = sentence(&endless);
    assert!(text.contains("a list of pages has a cycle at byte 512"), "{text}");
    let shared = database(&[(400, &[60, 1, 2, 0])], &[400; 20]);
    let text = sentence(&shared);
    assert!(text.contains("rows of a page share bytes"), "{text}");
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
