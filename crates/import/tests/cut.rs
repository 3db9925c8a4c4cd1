//! Files that were cut, and reports without a leak: what is left is right, or it is refused, and the reader gets a note.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Read;
use std::path::Path;

use stormlog_import::{About, Format, Held, Module, Node, Sink, Site, Step, read};
use stormlog_model::memory::Memory;

/// What a reader handed over.
#[derive(Default)]
struct Kept {
    modules: Vec<String>,
    holds: usize,
    nodes: u32,
    notes: Vec<String>,
}

impl Sink for Kept {
    fn about(&mut self, _: About) {}
    fn module(&mut self, module: Module<'_>) {
        self.modules.push(module.path.to_owned());
    }
    fn node(&mut self, _: Node, _: Step<'_>) -> Node {
        self.nodes += 1;
        self.nodes
    }
    fn hold(&mut self, _: Site<'_>, _: Held) {
        self.holds += 1;
    }
    fn level(&mut self, _: u64, _: u64) {}
    fn allocate(&mut self, _: Site<'_>, _: u64, _: u64) {}
    fn free(&mut self, _: Memory, _: u64, _: u64, _: u64) {}
    fn allocator(&mut self, _: Memory, _: u64, _: u64) {}
    fn at(&mut self, _: u64) {}
    fn resident(&mut self, _: u64) {}
    fn note(&mut self, note: String) {
        self.notes.push(note);
    }
}

impl Kept {
    fn ends_early(&self) -> bool {
        self.notes.iter().any(|note| note.starts_with("The file ends early"))
    }
}

fn kept(bytes: &[u8], format: Format) -> Result<Kept, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile");
    std::fs::write(&path, bytes).unwrap();
    let mut kept = Kept::default();
    read(&path, format, &mut kept).map(|()| kept).map_err(|error| error.to_string())
}

fn fixture(name: &str) -> Vec<u8> {
    let bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap();
    let mut plain = Vec::new();
    match name.ends_with(".gz") {
        true => flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap(),
        false => (&bytes[..]).read_to_end(&mut plain).unwrap(),
    };
    plain
}

#[test]
fn memory_map_cut_within_a_path_has_no_such_module() {
    for (name, format) in [("jemalloc.heap.gz", Format::Jemalloc), ("gperftools.heap.gz", Format::Gperftools)]
    {
        let bytes = fixture(name);
        let whole = kept(&bytes, format).unwrap();
        assert!(!whole.ends_early(), "{name}: {:?}", whole.notes);
        let map = memchr::memmem::find(&bytes, b"MAPPED_LIBRARIES:").unwrap();
        for end in (map + 18..bytes.len()).step_by(7) {
            let cut = kept(&bytes[..end], format).unwrap();
            assert!(cut.modules.iter().all(|path| whole.modules.contains(path)), "{name}: {:?}", cut.modules);
            assert!(bytes[end - 1] == b'\n' || cut.ends_early(), "{name} cut at {end}");
        }
        assert!(kept(&bytes[..map], format).unwrap().ends_early(), "{name} without its map");
        let text = kept(&bytes[..10], format).err().unwrap();
        assert!(text.contains("it ends within its first line at its end"), "{text}");
    }
}

#[test]
fn perfetto_trace_that_ends_within_a_packet_has_a_note() {
    let bytes = fixture("heapprofd.pftrace");
    assert!(!kept(&bytes, Format::Perfetto).unwrap().ends_early());
    let longer = [&bytes[..], &[0x0a, 0x20, 0x08]].concat();
    assert!(kept(&longer, Format::Perfetto).unwrap().ends_early());
}

#[test]
fn massif_profile_that_ends_within_a_line_has_a_note() {
    let bytes = fixture("massif.out.gz");
    assert!(!kept(&bytes, Format::Massif).unwrap().ends_early());
    assert!(kept(&bytes[..bytes.len() - 3], Format::Massif).unwrap().ends_early());
}

#[test]
fn truncated_sanitizer_report_gets_a_note() {
    let text = fixture("sanitizer.txt");
    assert!(!kept(&text, Format::SanitizerText).unwrap().ends_early());
    let second = memchr::memmem::rfind(&text, b"1,048,576").unwrap();
    let cut = kept(&text[..second + 4], Format::SanitizerText).unwrap();
    assert_eq!((cut.holds, cut.ends_early()), (1, true), "half a size is no size");
    let xml = fixture("sanitizer.xml");
    assert!(kept(&xml, Format::SanitizerXml).is_ok());
    let end = memchr::memmem::find(&xml, b"</ComputeSanitizerOutput>").unwrap();
    let text = kept(&xml[..end], Format::SanitizerXml).err().unwrap();
    assert!(text.contains("damaged compute-sanitizer report: its closing tag is missing"), "{text}");
}

#[test]
fn sanitizer_report_with_an_error_and_no_leak_has_that_error() {
    let report = "========= COMPUTE-SANITIZER\n\
                  ========= Invalid __global__ write of size 4 bytes\n\
                  =========     at scale(float *, int)+0x90 in scale.cu:18\n\
                  =========     by thread (32,0,0) in block (0,0,0)\n\
                  ========= \n\
                  ========= Program hit cudaErrorLaunchFailure (error 719) due to \"unspecified launch failure\" on CUDA API call to cudaDeviceSynchronize.\n\
                  ========= ERROR SUMMARY: 2 errors\n";
    let text = kept(report.as_bytes(), Format::SanitizerText).err().unwrap();
    assert!(
        text.ends_with(
            "with 2 errors and no leak: Invalid __global__ write of size 4 bytes at scale(float *, int)+0x90 in scale.cu:18; fix that and run again"
        ),
        "{text}"
    );
    let xml = "<?xml version=\"1.0\"?>\n<ComputeSanitizerOutput>\n<record>\n<kind>Precise</kind>\n<what>\n\
               <text>Invalid __global__ write of size 4 bytes</text>\n</what>\n</record>\n</ComputeSanitizerOutput>\n";
    let text = kept(xml.as_bytes(), Format::SanitizerXml).err().unwrap();
    assert!(text.contains("with 1 error and no leak: Invalid __global__ write"), "{text}");
}

#[test]
fn sanitizer_report_without_a_result_differs_from_one_without_a_leak() {
    let text = |report: &str| kept(report.as_bytes(), Format::SanitizerText).err().unwrap();
    let begun = text("========= COMPUTE-SANITIZER\n");
    assert!(begun.contains("without a result: the program was killed"), "{begun}");
    let clean = "========= COMPUTE-SANITIZER\n========= LEAK SUMMARY: 0 bytes leaked in 0 allocations\n\
                 ========= ERROR SUMMARY: 0 errors\n";
    assert!(text(clean).contains("all device memory was freed"));
    let failed = "========= COMPUTE-SANITIZER\n========= Target application terminated before first instrumented API call\n\
                  ========= ERROR SUMMARY: 0 errors\n";
    assert!(text(failed).contains("without a leak: Target application terminated"));
}
