//! `oom show` on what a program leaves when PyTorch runs out, with a snapshot recorded on a real GPU.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

fn show(path: &Path, options: &[&str]) -> String {
    let mut command = Command::cargo_bin("stormlog").unwrap();
    let output = command.args(["oom", "show", path.to_str().unwrap()]).args(options).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The four files every bundle has.
fn bundle(path: &Path, backend: &str, metadata: &Value) -> PathBuf {
    fs::create_dir_all(path).unwrap();
    let manifest = json!({
        "schema_version": 2, "bundle_name": path.file_name().unwrap().to_str(), "reason": "torch.cuda.OutOfMemoryError",
        "created_at_utc": "2026-11-15T07:13:46Z", "backend": backend, "event_count": 0, "files": [],
    });
    let text = json!({"exception_type": "OutOfMemoryError", "custom_metadata": metadata});
    let evidence = json!({"cause": "oom_exception", "verdict": "train.py ran out of memory"});
    for (name, value) in [
        ("manifest.json", manifest),
        ("metadata.json", text),
        ("environment.json", json!({"pid": 4711})),
        ("evidence.json", evidence),
        ("events.json", json!([])),
    ] {
        fs::write(path.join(name), value.to_string()).unwrap();
    }
    path.to_owned()
}

/// What the program itself adds: its facts, and the allocator's snapshot.
fn with_cuda(path: &Path) {
    let facts = json!({
        "device_index": 0, "device_name": "NVIDIA H200", "device_total_bytes": 139 * GIB,
        "requested_bytes": 49_470_976, "verdict": "CUDA out of memory at step 1 204 in backward on GPU 0: 47.18 MiB asked",
        "step": 1204, "phase": "backward", "torch_version": "2.8.0",
        "categories": {"parameters": {"bytes": GIB, "blocks": 4}, "unknown": {"bytes": GIB / 2, "blocks": 9}},
        "hidden_memory": {"hidden_bytes": GIB / 2, "parts": {"context": GIB / 2}, "other_processes_bytes": 2 * GIB,
            "driver_events": {"held": [{"owner": "nccl", "bytes": GIB / 4}, {"owner": "pytorch", "bytes": GIB}]}},
        "held_by": [{"place": "kv.py:57 append", "bytes": GIB, "note": "4 blocks"}],
        "stack": ["/x/site-packages/torch/nn/functional.py:5 linear", "/src/torch/nn/modules/linear.py:125 forward",
            "/home/me/torch/train.py:12 step"], "problems": [],
    });
    fs::write(path.join("cuda_oom.json"), facts.to_string()).unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../torch/tests/data");
    fs::copy(data.join("kvcache-s11-oomretry.pickle.gz"), path.join("cuda_allocator_snapshot.pickle"))
        .unwrap();
}

#[test]
fn one_page_shows_the_request_the_cause_and_the_advice() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(&folder.path().join("oom_dump_20261115T071346Z_4711_cuda_1"), "cuda", &json!({}));
    with_cuda(&path);
    let page = show(folder.path(), &[]);
    for expected in [
        "gpu       GPU 0 (NVIDIA H200, 139.0 GiB) · step 1 204 · backward",
        "failed    cuda:0: 47.18 MiB by alloc_workload.py",
        "because   fragmentation: requested 47.18 MiB; 131.5 MiB is free in this pool",
        "is        parameters 1.00 GiB · unknown 512.0 MiB",
        "hidden    other processes 2.00 GiB · context 512.0 MiB",
        "outside torch 2.50 GiB",
        "driver    pytorch 1.00 GiB · nccl 256.0 MiB",
        "replay    expandable_segments:True would have served the request",
        "try       export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: expandable_segments:True would have served",
        "layers    cuda:0 used ",
    ] {
        assert!(page.contains(expected), "no {expected:?} in\n{page}");
    }
    let headline: Vec<&str> = page.lines().take_while(|line| !line.is_empty()).collect();
    assert!(headline.len() <= 8 && headline.concat().contains("kv.py:57 append"), "{page}");
    let whole: Value = serde_json::from_str(&show(&path, &["--json"])).unwrap();
    assert_eq!(whole["cuda"]["analysis"]["oom"]["cause"], "fragmentation");
    assert_eq!(whole["cuda"]["device_name"], "NVIDIA H200");
}

#[test]
fn the_supervisors_bundle_shows_what_the_program_left_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let own =
        bundle(&run.join("rank0-pid4711-cuda0/oom_dump_20261115T071346Z_4711_cuda_1"), "cuda", &json!({}));
    with_cuda(&own);
    let other =
        bundle(&run.join("rank0-pid99-cuda0/oom_dump_20261115T081346Z_99_cuda_1"), "cuda", &json!({}));
    fs::write(other.join("cuda_oom.json"), r#"{"device_name": "of another process"}"#).unwrap();
    let supervisors = run.join("rank0-pid4711/oom_dump_20261115T071347Z_4711_cpu_1");
    bundle(&supervisors, "cpu", &json!({"run_directory": run.to_str()}));
    let page = show(&supervisors, &[]);
    for expected in
        ["because   fragmentation", "held by   1.00 GiB  cuda:0  kv.py:57 append", own.to_str().unwrap()]
    {
        assert!(page.contains(expected), "no {expected:?} in\n{page}");
    }
    assert!(!page.contains("of another process"), "{page}");
    let (first, rest) = page.split_once('\n').unwrap();
    assert_eq!(first, "CUDA out of memory at step 1 204 in backward on GPU 0.");
    assert!(rest.contains("\n  program   train.py ran out of memory\n"), "{page}");
}

#[test]
fn damaged_files_cost_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(&folder.path().join("oom_dump_20261115T071346Z_4711_cuda_1"), "cuda", &json!({}));
    with_cuda(&path);
    fs::write(path.join("cuda_allocator_snapshot.pickle"), b"\x80\x04cos\nsystem\n.").unwrap();
    let page = show(&path, &[]);
    assert!(page.contains("failed    cuda:0: 47.18 MiB by /home/me/torch/train.py:12 step"), "{page}");
    assert!(page.contains("note      cuda_allocator_snapshot.pickle: "), "{page}");
    for hostile in ["[]", "{", "{\"categories\": 5, \"hidden_memory\": [], \"stack\": {}, \"problems\": 7}"] {
        fs::write(path.join("cuda_oom.json"), hostile).unwrap();
        assert!(show(&path, &[]).contains("oom_exception"));
    }
}
