//! Real texts of real programs, and what each means. The positives that 0.4.3 also knows must keep its reason.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "in a test a panic is the report")]

use stormlog_postmortem::Cause;
use stormlog_postmortem::classify::{ExceptionFacts, classify};

const RUNTIME: (&str, &str) = ("builtins", "RuntimeError");
const MEMORY: (&str, &str) = ("builtins", "MemoryError");
const NUMPY: (&str, &str) = ("numpy._core._exceptions", "_ArrayMemoryError");
const TF: (&str, &str) = ("tensorflow.python.framework.errors_impl", "ResourceExhaustedError");
const XLA: (&str, &str) = ("jaxlib._jax", "XlaRuntimeError");
const VALUE: (&str, &str) = ("builtins", "ValueError");
const GRPC: (&str, &str) = ("grpc._channel", "_InactiveRpcError");

type Row = ((&'static str, &'static str), &'static str, &'static str);

#[rustfmt::skip]
const OOM: &[Row] = &[
    // torch
    (("torch.cuda", "OutOfMemoryError"), "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity; 71.28 GiB already allocated; 1.62 GiB free; 75.79 GiB reserved in total by PyTorch)", "torch.cuda.OutOfMemoryError"),
    (("torch", "OutOfMemoryError"), "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 12.25 MiB is free.", "torch.cuda.OutOfMemoryError"),
    (("torch", "OutOfMemoryError"), "", "torch.cuda.OutOfMemoryError"),
    (RUNTIME, "CUDA out of memory. Tried to allocate 192.00 MiB", "message_pattern:out of memory"),
    (RUNTIME, "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call", "message_pattern:out of memory"),
    (("torch", "AcceleratorError"), "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the CUDA documentation", "message_pattern:out of memory"),
    (RUNTIME, "HIP out of memory. Tried to allocate 256.00 MiB (GPU 0; 15.98 GiB total capacity)", "message_pattern:out of memory"),
    (RUNTIME, "HIP error: hipErrorOutOfMemory", "message_pattern:hiperroroutofmemory"),
    (RUNTIME, "MPS backend out of memory (MPS allocated: 18.13 GB, other allocations: 384.00 KB, max allowed: 18.13 GB). Tried to allocate 256 bytes on shared pool.", "message_pattern:out of memory"),
    (RUNTIME, "XPU out of memory. Tried to allocate 4.00 GiB", "message_pattern:out of memory"),
    (RUNTIME, "simulated out of memory for demo", "message_pattern:out of memory"),
    (RUNTIME, "[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 1099511627776 bytes. Error code 12 (Cannot allocate memory)", "message_pattern:can't allocate memory"),
    (RUNTIME, "[enforce fail at ..\\c10\\core\\impl\\alloc_cpu.cpp:81] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8589934592 bytes.", "message_pattern:not enough memory"),
    (RUNTIME, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "message_pattern:cublas_status_alloc_failed"),
    (RUNTIME, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "message_pattern:cudnn_status_alloc_failed"),
    (RUNTIME, "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`", "message_pattern:_status_alloc_failed"),
    (RUNTIME, "cudaErrorMemoryAllocation: CUDA driver call failed with error 2", "message_pattern:cudaerrormemoryallocation"),
    (RUNTIME, "DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.", "message_pattern:workers are out of shared memory"),
    // NCCL
    (("torch.distributed", "DistBackendError"), "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, unhandled cuda error, NCCL version 2.18.1\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'out of memory'", "message_pattern:out of memory"),
    (("torch.distributed", "DistBackendError"), "NCCL error: unhandled cuda error\nLast error:\nFailed to CUDA calloc async 608 bytes", "message_pattern:failed to cuda calloc"),
    (("torch.distributed", "DistBackendError"), "include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes", "message_pattern:failed to cuda calloc"),
    // Python and numpy
    (MEMORY, "", "builtins.MemoryError"),
    (MEMORY, "bad luck", "builtins.MemoryError"),
    (MEMORY, "out of memory", "message_pattern:out of memory"),
    (MEMORY, "std::bad_alloc", "message_pattern:std::bad_alloc"),
    (MEMORY, "failed to allocate port 80", "message_pattern:failed to allocate"),
    (NUMPY, "Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64", "message_pattern:unable to allocate"),
    (NUMPY, "", "numpy.ArrayMemoryError"),
    (("numpy.core._exceptions", "MemoryError"), "Unable to allocate array with shape (100000, 100000) and data type float64", "message_pattern:unable to allocate"),
    (("pyarrow.lib", "ArrowMemoryError"), "malloc of size 68719476736 failed", "builtins.MemoryError"),
    (("builtins", "SystemError"), "worker raised MemoryError", "message_pattern:memoryerror"),
    (("py4j.protocol", "Py4JJavaError"), "java.lang.OutOfMemoryError: Java heap space", "message_pattern:memoryerror"),
    (("joblib.externals.loky", "RemoteTraceback"), "numpy.core._exceptions._ArrayMemoryError", "message_pattern:memoryerror"),
    // the operating system
    (("builtins", "OSError"), "[Errno 12] Cannot allocate memory", "message_pattern:cannot allocate memory"),
    (("builtins", "OSError"), "[Errno 12] Cannot allocate memory: '/dev/shm/x'", "message_pattern:cannot allocate memory"),
    (("subprocess", "SubprocessError"), "fork: Cannot allocate memory", "message_pattern:cannot allocate memory"),
    (RUNTIME, "mmap failed: Cannot allocate memory", "message_pattern:cannot allocate memory"),
    // C++ and others
    (RUNTIME, "std::bad_alloc", "message_pattern:std::bad_alloc"),
    (("rmm", "RMMError"), "std::bad_alloc: out_of_memory: CUDA error at: /opt/rmm/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation", "message_pattern:std::bad_alloc"),
    (("cupy.cuda.memory", "OutOfMemoryError"), "Out of memory allocating 8,000,000,000 bytes (allocated so far: 0 bytes).", "message_pattern:out of memory"),
    (("ray.exceptions", "OutOfMemoryError"), "Task was killed due to the node running low on memory.", "ray.exceptions.OutOfMemoryError"),
    (("numba.cuda.cudadrv.driver", "CudaAPIError"), "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", "message_pattern:cuda_error_out_of_memory"),
    (("cv2", "error"), "OpenCV(4.8.0) alloc.cpp:73: error: (-4:Insufficient memory) Failed to allocate 1244160000 bytes in function 'OutOfMemoryError'", "message_pattern:failed to allocate"),
    (("onnxruntime.capi.onnxruntime_pybind11_state", "RuntimeException"), "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : bfc_arena.cc:368 Failed to allocate memory for requested buffer of size 1073741824", "message_pattern:failed to allocate"),
    (RUNTIME, "[TensorRT] ERROR: [defaultAllocator.cpp::allocate::19] Error Code 1: Cuda Runtime (out of memory)", "message_pattern:out of memory"),
    (RUNTIME, "ggml_backend_cuda_buffer_type_alloc_buffer: failed to allocate CUDA0 buffer of size 17179869184", "message_pattern:failed to allocate"),
    (RUNTIME, "[metal::malloc] Attempting to allocate 34359738368 bytes which is greater than the maximum allowed buffer size of 22613000192 bytes.", "message_pattern:attempting to allocate"),
    (RUNTIME, "[malloc_or_wait] Unable to allocate 4294967296 bytes.", "message_pattern:unable to allocate"),
    (RUNTIME, "VK_ERROR_OUT_OF_DEVICE_MEMORY", "message_pattern:error_out_of_device_memory"),
    (("pyopencl", "MemoryError"), "clEnqueueNDRangeKernel failed: MEM_OBJECT_ALLOCATION_FAILURE", ""),
    (VALUE, "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.", "message_pattern:no available memory for the cache blocks"),
    (("sqlite3", "OperationalError"), "out of memory", "message_pattern:out of memory"),
    (RUNTIME, "failed to allocate", "message_pattern:failed to allocate"),
    (RUNTIME, "cudaMalloc: allocation failed.", "message_pattern:allocation failed"),
    (RUNTIME, "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", "message_pattern:out of memory"),
    (RUNTIME, "ran out of memory, although the settings avoid running out of memory", "message_pattern:out of memory"),
    // TensorFlow, XLA and JAX
    (TF, "OOM when allocating tensor with shape[4096,4096] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:MatMul]", "tensorflow.ResourceExhaustedError"),
    (TF, "failed to allocate memory [Op:AddV2]", "tensorflow.ResourceExhaustedError"),
    (TF, "", "tensorflow.ResourceExhaustedError"),
    (("tests", "FakeResourceExhaustedError"), "resource exhausted", "tensorflow.ResourceExhaustedError"),
    (RUNTIME, "RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[1024,1024]", "message_pattern:oom when allocating"),
    (RUNTIME, "Resource exhausted: Failed to allocate request for 32.00MiB (33554432B) on device ordinal 0", "message_pattern:resource exhausted"),
    (RUNTIME, "Resource exhausted", "message_pattern:resource exhausted"),
    (XLA, "RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0", "message_pattern:failed to allocate"),
    (XLA, "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7406166528 bytes.", "message_pattern:out of memory"),
    (XLA, "RESOURCE_EXHAUSTED: Attempting to reserve 8.00G at the bottom of memory. That was not possible. There are 7.50G free, 0B reserved, and 7.50G reservable.", "message_pattern:resource_exhausted"),
    (RUNTIME, "Bad StatusOr access: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space vmem.", "message_pattern:out of memory"),
    (("paddle.base.core", "ResourceExhaustedError"), "Out of memory error on GPU 0. Cannot allocate 1.000000GB memory on GPU 0", "tensorflow.ResourceExhaustedError"),
];

#[rustfmt::skip]
const NOT_OOM: &[((&str, &str), &str)] = &[
    // The launcher reports a rank that ran out of memory; it did not itself.
    (("torch.distributed.elastic.multiprocessing.errors", "ChildFailedError"), "train.py FAILED\nRoot Cause (first observed failure):\ntraceback : train.py (pid 7) ran out of memory: CUDA out of memory."),
    (RUNTIME, ""),
    (RUNTIME, "CUDA error: device-side assert triggered"),
    (RUNTIME, "CUDA error: an illegal memory access was encountered"),
    (RUNTIME, "CUDA error: too many resources requested for launch"),
    (RUNTIME, "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    (RUNTIME, "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
    (("triton.runtime.errors", "OutOfResources"), "out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes or `num_stages` may help."),
    (RUNTIME, "failed to allocate port 80"),
    (RUNTIME, "Failed to allocate a free port in range 30000-32767"),
    (RUNTIME, "IP address allocation failed: pool is empty"),
    (RUNTIME, "GPU allocation failed: no GPUs available in partition a100"),
    (RUNTIME, "Failed to allocate a node for the job"),
    (RUNTIME, "failed to allocate pty"),
    (RUNTIME, "slurm: Requested node allocation failed (job held)"),
    (RUNTIME, "license server: unable to allocate seat"),
    (RUNTIME, "Unable to allocate file descriptor"),
    (RUNTIME, "out of memory slots in the schedule"),
    (VALUE, "index out of memory range"),
    (VALUE, "address 0x10 out of memory bounds"),
    (VALUE, "set batch_size to avoid running out of memory"),
    (VALUE, "this model does not fit on the screen"),
    (GRPC, "Resource exhausted: too many requests"),
    (GRPC, "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.RESOURCE_EXHAUSTED\n\tdetails = \"Received message larger than max (17777780 vs. 4194304)\""),
    (GRPC, "RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Generate Content API requests per minute'"),
    (GRPC, "RESOURCE_EXHAUSTED: gRPC message exceeds maximum size 4194304: 5242880 bytes"),
    (("google.api_core.exceptions", "ResourceExhausted"), "429 Resource has been exhausted (e.g. check quota)."),
    (("client.errors", "ResourceExhaustedError"), "quota exceeded: 60 requests per minute"),
    (("builtins", "OSError"), "[Errno 122] Disk quota exceeded"),
    (("builtins", "OSError"), "[Errno 28] No space left on device"),
    (("builtins", "OSError"), "[Errno 24] Too many open files"),
    (("builtins", "BlockingIOError"), "[Errno 11] Resource temporarily unavailable"),
    (("builtins", "ImportError"), "/lib/aarch64-linux-gnu/libgomp.so.1: cannot allocate memory in static TLS block"),
    (("psycopg2.errors", "OutOfMemory"), "out of shared memory\nHINT:  You might need to increase max_locks_per_transaction."),
    (("shared", "SharedMemoryError"), "SharedMemoryError: segment psm_21 exists already"),
    (("pymongo.errors", "OperationFailure"), "Sort exceeded memory limit of 104857600 bytes"),
    (RUNTIME, "DataLoader worker (pid 4242) is killed by signal: Killed."),
    (("builtins", "RecursionError"), "maximum recursion depth exceeded"),
    (("builtins", "KeyError"), "'memory'"),
    (("builtins", "KeyboardInterrupt"), ""),
    (("builtins", "BufferError"), "memoryview: underlying buffer is not C-contiguous"),
];

fn bases_of(module: &str, name: &str) -> &'static [&'static str] {
    match name {
        "MemoryError" | "_ArrayMemoryError" | "ArrowMemoryError" => {
            &["builtins.MemoryError", "builtins.Exception"]
        }
        "OSError" | "BlockingIOError" => &["builtins.OSError", "builtins.Exception"],
        "OutOfMemoryError" if module.contains("torch") => {
            &["torch.OutOfMemoryError", "builtins.RuntimeError"]
        }
        _ => &["builtins.Exception", "builtins.BaseException", "builtins.object"],
    }
}

fn facts<'a>(of: (&'a str, &'a str), message: &'a str) -> ExceptionFacts<'a> {
    ExceptionFacts { type_name: of.1, module: of.0, bases: bases_of(of.0, of.1), message, errno: None }
}

#[test]
fn memory_that_ran_out() {
    assert!(OOM.len() + NOT_OOM.len() >= 60);
    for (of, message, reason) in OOM {
        let found = classify(&facts(*of, message));
        assert!(found.is_oom, "{of:?} {message}");
        if !reason.is_empty() {
            assert_eq!(found.reason.as_deref(), Some(*reason), "{of:?} {message}");
        }
        let is_memory_error = bases_of(of.0, of.1).contains(&"builtins.MemoryError");
        let cause = if is_memory_error { Cause::MemoryError } else { Cause::OomException };
        assert_eq!(found.cause(), Some(cause), "{of:?} {message}");
    }
}

#[test]
fn similar_messages_are_not_classified_as_oom() {
    for (of, message) in NOT_OOM {
        let found = classify(&facts(*of, message));
        assert_eq!((found.is_oom, found.reason.as_deref()), (false, None), "{of:?} {message}");
        assert_eq!(found.cause(), None);
    }
}

#[test]
fn an_error_number_counts_only_for_system_errors() {
    let with = |bases: &'static [&'static str], errno| {
        let facts = ExceptionFacts { type_name: "E", module: "m", bases, message: "x", errno };
        classify(&facts).reason.map(|reason| reason.into_owned())
    };
    assert_eq!(with(&["builtins.OSError"], Some(12)).as_deref(), Some("errno:ENOMEM"));
    assert_eq!(with(&["builtins.OSError"], Some(28)), None);
    assert_eq!(with(&["builtins.OSError"], None), None);
    assert_eq!(with(&["mysql.Error"], Some(12)), None);
}

#[test]
fn subclasses_of_the_torch_error_are_known_by_their_base() {
    let facts = ExceptionFacts {
        type_name: "MyError",
        module: "app",
        bases: &["torch.OutOfMemoryError"],
        message: "wrapped",
        errno: None,
    };
    assert_eq!(classify(&facts).reason.as_deref(), Some("torch.cuda.OutOfMemoryError"));
}

#[test]
fn a_huge_message_is_read_at_its_start_only() {
    let mut message = "é".repeat(1 << 20);
    message.push_str("out of memory");
    assert!(!classify(&facts(RUNTIME, &message)).is_oom);
    let message = format!("out of memory{}", "é".repeat(1 << 20));
    assert!(classify(&facts(RUNTIME, &message)).is_oom);
}

/// Every text on which 0.4.3 and we agree that memory ran out carries its reason: asked from the real one.
#[test]
fn reasons_are_those_of_the_real_one() {
    let Some(python) = std::env::var_os("STORMLOG_PEER_PYTHON") else {
        eprintln!("skipped: STORMLOG_PEER_PYTHON is not set to a Python that has stormlog 0.4.3");
        return;
    };
    let script = "import sys, json\nfrom stormlog.oom_flight_recorder import classify_oom_exception as c\n\
        for m, n, t in json.load(sys.stdin):\n\
        \x20   base = MemoryError if n in ('MemoryError', '_ArrayMemoryError', 'ArrowMemoryError') else Exception\n\
        \x20   r = c(type(n, (base,), {'__module__': m})(t))\n    print(json.dumps([r.is_oom, r.reason]))";
    let rows: Vec<_> = OOM.iter().map(|(of, message, _)| (of.0, of.1, *message)).collect();
    let mut child = std::process::Command::new(python)
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), &rows).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut agreed = 0;
    for ((of, message, _), line) in OOM.iter().zip(text.lines()) {
        let (is_oom, reason): (bool, Option<String>) = serde_json::from_str(line).unwrap();
        if is_oom {
            assert_eq!(
                classify(&facts(*of, message)).reason.as_deref(),
                reason.as_deref(),
                "{of:?} {message}"
            );
            agreed += 1;
        }
    }
    assert!(agreed >= 25, "{agreed}");
}
