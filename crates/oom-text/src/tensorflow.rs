//! TensorFlow's message of a failed allocation, which is also the text of its `ResourceExhaustedError`: the tensor, the device, the operation,
//! and with `report_tensor_allocations_upon_oom` the operations that hold memory. An operation that runs outside a kernel's context fails with
//! `failed to allocate memory` alone; its figures are in the allocator's report before it.

use crate::bfc::MAX_HOLDERS;
use crate::failure::{Failure, Framework, Holder, Tensor};
use crate::failure_list::FailureList;
use crate::line::{Line, after, between, name, size};

const START: &str = "OOM when allocating tensor with shape[";
const SHORT: &str = "failed to allocate memory";
/// One of these is before [`SHORT`], within [`STATUS_BYTES`]: other programs say the same words.
const STATUSES: [&str; 3] = ["ResourceExhaustedError", "RESOURCE_EXHAUSTED", "Resource exhausted"];
const STATUS_BYTES: usize = 512;

/// Follows a list of holders.
#[derive(Default)]
pub(crate) struct Reader {
    in_usage: bool,
}

impl Reader {
    /// Whether the line belongs to a message.
    pub fn line(&mut self, line: &Line<'_>, failures: &mut FailureList) -> bool {
        if let Some(at) = line.raw.find(START)
            && let Some(tensor) = tensor(&line.raw[at..])
        {
            self.in_usage = false;
            message(line.number, &line.raw[at..], tensor, failures);
            return true;
        }
        if let Some((op, device)) = short_message(line.raw) {
            self.in_usage = false;
            if let Some(failure) = failures.of_message(line.number, SHORT, None) {
                failure.framework = Some(Framework::TensorFlow);
                failure.requester = failure.requester.take().or(op);
                failure.device = failure.device.take().or(device);
            }
            return true;
        }
        let Some(failure) = failures.last() else { return false };
        if let Some(rest) = after(line.raw, "Current usage from device: ") {
            self.in_usage = true;
            if failure.device.is_none() {
                failure.device = rest.split(", allocator:").next().and_then(name);
            }
            // The list is printed with each copy of the message.
            failure.holders.clear();
            return true;
        }
        if self.in_usage {
            self.in_usage = usage(line.message, failure);
            return self.in_usage;
        }
        node(line.message, failure)
    }
}

/// `OOM when allocating tensor with shape[4,2048] and type float on /job:…/device:GPU:0 by allocator GPU_0_bfc [Op:AddV2]`.
fn message(number: u64, text: &str, tensor: Tensor, failures: &mut FailureList) {
    let allocator = after(text, " by allocator ").and_then(|rest| rest.split_whitespace().next());
    let device = between(text, " on ", " by allocator ").and_then(name);
    let op = between(text, "[Op:", "]").and_then(name);
    // Copies of a message differ in what follows the allocator's name.
    let key = text.split(" [Op:").next().unwrap_or(text).trim_end();
    let Some(failure) = name(key).and_then(|key| failures.of_message(number, &key, allocator)) else {
        return;
    };
    failure.framework = Some(Framework::TensorFlow);
    failure.requested = failure.requested.or(tensor.bytes);
    failure.tensor = Some(tensor);
    failure.device = device.or(failure.device.take());
    failure.requester = failure.requester.take().or(op);
}

/// The operation and the device of `{{function_node __wrapped__Mul_device_/job:…/device:GPU:0}} failed to allocate memory [Op:Mul]`, where the line
/// has that message.
fn short_message(text: &str) -> Option<(Option<String>, Option<String>)> {
    let (before, rest) = text.split_once(SHORT)?;
    let mut start = before.len().saturating_sub(STATUS_BYTES);
    while !before.is_char_boundary(start) {
        start += 1;
    }
    let rest = rest.trim();
    let is_end = rest.is_empty() || rest.starts_with("[Op:") || rest.starts_with("[[{{node ");
    if !is_end || !STATUSES.iter().any(|status| before[start..].contains(status)) {
        return None;
    }
    let (wrapped, device) =
        between(before, "__wrapped__", "}}").and_then(|node| node.split_once("_device_")).unzip();
    let op = between(rest, "[Op:", "]").or_else(|| between(rest, "[[{{node ", "}}")).or(wrapped);
    Some((op.and_then(name), device.and_then(name)))
}

/// A shape without a number is the format string, in a program or in its source.
fn tensor(text: &str) -> Option<Tensor> {
    let shape = between(text, START, "]")?;
    let is_shape = shape.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b' '));
    let dtype =
        after(text, "] and type ").and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    if !is_shape || (shape.is_empty() && element_size(dtype).is_none()) {
        return None;
    }
    let elements = shape
        .split(',')
        .filter(|dimension| !dimension.trim().is_empty())
        .try_fold(1u64, |product, dimension| product.checked_mul(dimension.trim().parse().ok()?));
    let bytes = elements.zip(element_size(dtype)).and_then(|(elements, size)| elements.checked_mul(size));
    Some(Tensor { shape: name(shape).unwrap_or_default(), dtype: name(dtype).unwrap_or_default(), bytes })
}

/// TensorFlow's names of element types.
fn element_size(dtype: &str) -> Option<u64> {
    match dtype {
        "bool" | "int8" | "uint8" | "qint8" | "quint8" | "float8_e5m2" | "float8_e4m3fn" => Some(1),
        "half" | "bfloat16" | "int16" | "uint16" => Some(2),
        "float" | "int32" | "uint32" | "qint32" => Some(4),
        "double" | "int64" | "uint64" | "complex64" => Some(8),
        "complex128" => Some(16),
        _ => None,
    }
}

/// `  64.00MiB from dense_1/MatMul`; false at the end of the list.
fn usage(text: &str, failure: &mut Failure) -> bool {
    if text.starts_with("Remaining ") {
        return true;
    }
    let Some((bytes, node)) =
        text.split_once(" from ").and_then(|(bytes, node)| Some((size(bytes)?, name(node)?)))
    else {
        return false;
    };
    if failure.holders.len() < MAX_HOLDERS {
        failure.holders.push(Holder { bytes, name: node, ..Holder::default() });
    }
    true
}

/// `[[{{node layer1/conv2_2/MatMul}}]]`: the operation that asked, in a graph.
fn node(text: &str, failure: &mut Failure) -> bool {
    let Some(node) = between(text, "[[{{node ", "}}").and_then(name) else { return false };
    let is_message = failure.tensor.is_some() || failure.message.as_deref() == Some(SHORT);
    if is_message && failure.requester.is_none() {
        failure.requester = Some(node);
    }
    true
}
