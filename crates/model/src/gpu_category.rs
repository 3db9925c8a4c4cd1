//! What GPU memory is for: the words of reports, pages, bundles, captures and the Python package, and what the frames of a stack say about it.
//! Must judge by the frames handed in alone; how a block ended and what lives beside it is for its callers. In words: `docs/gpu-memory-categories.md`.

use serde::Serialize;

use crate::stacks::is_library;

/// What a block of GPU memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Weights of modules; by stacks alone their buffers too.
    Parameters,
    /// Gradients of parameters.
    Gradients,
    /// Optimizer state, and what its step needs for a moment.
    OptimizerState,
    /// Results of the forward pass, kept for the backward pass.
    Activations,
    /// What the backward pass needs for a moment.
    BackwardTemporaries,
    /// Batches from a data loader.
    Inputs,
    /// Buffers of distributed training.
    Communication,
    /// Scratch space of math libraries.
    Workspaces,
    /// No rule covers it, and no live Python tensor explains it.
    Unknown,
    /// Registered buffers of modules; known only inside the program.
    Buffers,
    /// Other live Python tensors; known only inside the program.
    Data,
    /// Private pools: CUDA graphs and `MemPool`.
    GraphPools,
    /// Given back, but another stream may still use it.
    AwaitingFree,
}

impl Category {
    /// Every one, in the order of their numbers.
    pub const ALL: [Category; 13] = [
        Category::Parameters,
        Category::Gradients,
        Category::OptimizerState,
        Category::Activations,
        Category::BackwardTemporaries,
        Category::Inputs,
        Category::Communication,
        Category::Workspaces,
        Category::Unknown,
        Category::Buffers,
        Category::Data,
        Category::GraphPools,
        Category::AwaitingFree,
    ];

    /// As it is written in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::OptimizerState => "optimizer_state",
            Category::Activations => "activations",
            Category::BackwardTemporaries => "backward_temporaries",
            Category::Inputs => "inputs",
            Category::Communication => "communication",
            Category::Workspaces => "workspaces",
            Category::Unknown => "unknown",
            Category::Buffers => "buffers",
            Category::Data => "data",
            Category::GraphPools => "graph_pools",
            Category::AwaitingFree => "awaiting_free",
        }
    }
}

/// Sizes cuBLAS and cublasLt take for scratch: 8.125 MiB, 32 MiB on newer GPUs, 1 MiB. Of what was there before recording
/// started they prove nothing: many a weight has such a size.
pub const WORKSPACES: [u64; 3] = [CUBLAS_WORKSPACE, CUBLAS_WORKSPACE_HOPPER, 1_048_576];
/// What PyTorch gives cuBLAS on each stream, before Hopper and since.
pub const CUBLAS_WORKSPACE: u64 = 8_519_680;
/// The same on Hopper and newer GPUs.
pub const CUBLAS_WORKSPACE_HOPPER: u64 = 33_554_432;

/// What the frames of a stack say, the innermost first. The innermost hint counts, and stronger ones of library code around it: `load` of a
/// module is part of `load_state_dict`. Once there is a hint, a frame of the program ends the search: what a closure does within
/// `Optimizer.step` is not the optimizer's.
pub fn category_of_stack<'a>(frames: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Category> {
    const ORDER: [Category; 6] = [
        Category::OptimizerState,
        Category::Parameters,
        Category::Communication,
        Category::Inputs,
        Category::BackwardTemporaries,
        Category::Activations,
    ];
    let mut best: Option<usize> = None;
    for (file, function) in frames {
        let hint = of_frame(file, function);
        let rank = hint.and_then(|hint| ORDER.iter().position(|&category| category == hint));
        best = best.into_iter().chain(rank).min();
        if best.is_some() && !is_library(file) {
            break;
        }
    }
    best.and_then(|rank| ORDER.get(rank).copied())
}

/// The name of a function without what it is defined in: `convert` of `Module.to.<locals>.convert`. Captures have qualified names where Python
/// has them (from 3.11 on), snapshots have plain ones.
fn plain_name(function: &str) -> &str {
    function.rsplit('.').next().unwrap_or(function)
}

/// Whether a frame is within a backward pass: that of the thread that called the engine, or of code that the engine called back (a function of
/// the program, a compiled region, what a checkpoint computes once more).
#[must_use]
pub fn is_backward_frame(file: &str, function: &str) -> bool {
    let name = plain_name(function);
    let is = |names: &[&str]| names.contains(&name);
    (file.ends_with("torch/autograd/__init__.py") && is(&["backward", "grad", "_make_grads"]))
        || (file.ends_with("torch/autograd/graph.py") && name == "_engine_run_backward")
        || (file.ends_with("torch/autograd/function.py") && function.ends_with("BackwardCFunction.apply"))
        || (file.ends_with("torch/utils/checkpoint.py") && is(&["backward", "unpack_hook", "recompute_fn"]))
}

/// What one frame says.
fn of_frame(file: &str, function: &str) -> Option<Category> {
    let name = plain_name(function);
    let is = |names: &[&str]| names.contains(&name);
    if file.contains("torch/optim/") || file.contains("/optimizers/") || file.contains("bitsandbytes/optim") {
        return Some(Category::OptimizerState);
    }
    if (file.ends_with("nn/modules/module.py")
        && is(&["_apply", "convert", "to_empty", "_load_from_state_dict", "load_state_dict"]))
        || is(&[
            "reset_parameters",
            "_init_weights",
            "init_weights",
            "load_state_dict",
            "from_pretrained",
            "create_parameter",
        ])
        || (name == "__init__" && file.contains("nn/modules/"))
    {
        return Some(Category::Parameters);
    }
    if file.contains("torch/distributed/")
        || (name == "__init__" && file.ends_with("nn/parallel/distributed.py"))
        || file.contains("deepspeed/comm")
        || file.contains("core/distributed/")
    {
        return Some(Category::Communication);
    }
    if file.contains("torch/utils/data/") || is(&["pin_memory", "default_collate", "collate_fn"]) {
        return Some(Category::Inputs);
    }
    if file.contains("torch/autograd/") || is(&["backward", "_engine_run_backward"]) {
        return Some(Category::BackwardTemporaries);
    }
    if name == "forward" || file.contains("torch/nn/") || is(&["_call_impl", "_wrapped_call_impl"]) {
        return Some(Category::Activations);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "/v/lib/python3.12/site-packages/torch/nn/modules/module.py";
    const ADAM: &str = "/v/lib/python3.12/site-packages/torch/optim/adam.py";
    const AUTOGRAD: &str = "/v/lib/python3.12/site-packages/torch/autograd/__init__.py";

    fn category(frames: &[(&str, &str)]) -> Option<Category> {
        category_of_stack(frames.iter().copied())
    }

    #[test]
    fn frames_decide_the_category() {
        for (expected, frames) in [
            (
                Some(Category::Parameters),
                &[(MODULE, "convert"), (MODULE, "_apply"), ("train.py", "main")][..],
            ),
            (
                Some(Category::Parameters),
                &[(MODULE, "load"), (MODULE, "load_state_dict"), ("train.py", "main")],
            ),
            (Some(Category::OptimizerState), &[(ADAM, "_init_group"), (ADAM, "step"), ("train.py", "main")]),
            (
                Some(Category::Activations),
                &[("model.py", "forward"), (MODULE, "_call_impl"), ("train.py", "main")],
            ),
            (Some(Category::BackwardTemporaries), &[(AUTOGRAD, "backward"), ("train.py", "main")]),
            (None, &[("train.py", "main")]),
        ] {
            assert_eq!(category(frames), expected, "{frames:?}");
        }
    }

    #[test]
    fn qualified_names_give_the_same_category() {
        let loaded = (MODULE, "Module.load_state_dict.<locals>.load");
        for (expected, frames) in [
            (Category::Parameters, &[(MODULE, "Module.to.<locals>.convert"), (MODULE, "Module._apply")][..]),
            (Category::Parameters, &[(MODULE, "Module.cuda.<locals>.<lambda>"), (MODULE, "Module._apply")]),
            (Category::Parameters, &[(MODULE, "Module._load_from_state_dict"), loaded]),
            (Category::Parameters, &[("/v/site-packages/torch/nn/modules/linear.py", "Linear.__init__")]),
            (Category::OptimizerState, &[(ADAM, "Adam._init_group"), (ADAM, "Adam.step")]),
            (Category::Activations, &[("model.py", "Net.forward"), (MODULE, "Module._call_impl")]),
            (Category::BackwardTemporaries, &[("/v/site-packages/torch/_tensor.py", "Tensor.backward")]),
        ] {
            assert_eq!(category(frames), Some(expected), "{frames:?}");
        }
    }

    #[test]
    fn a_backward_pass_is_known_by_the_frames_around_it() {
        let functions = "/v/site-packages/torch/autograd/function.py";
        for (expected, file, function) in [
            (true, AUTOGRAD, "_make_grads"),
            (true, "/v/site-packages/torch/autograd/graph.py", "_engine_run_backward"),
            (true, functions, "BackwardCFunction.apply"),
            (true, "/v/site-packages/torch/utils/checkpoint.py", "CheckpointFunction.backward"),
            (false, functions, "Function.apply"),
            (false, "/v/site-packages/torch/utils/checkpoint.py", "CheckpointFunction.forward"),
            (false, "/v/site-packages/torch/autograd/grad_mode.py", "no_grad.__enter__"),
            (false, "train.py", "backward"),
        ] {
            assert_eq!(is_backward_frame(file, function), expected, "{file} {function}");
        }
    }

    #[test]
    fn memory_of_a_closure_is_not_optimizer_state() {
        let forward =
            [("model.py", "forward"), (MODULE, "_call_impl"), ("fit.py", "closure"), (ADAM, "step")];
        assert_eq!(category(&forward), Some(Category::Activations));
        let own_optimizer = [("sgd.py", "step"), ("/v/site-packages/torch/optim/optimizer.py", "wrapper")];
        assert_eq!(category(&own_optimizer), Some(Category::OptimizerState));
    }
}
