//! What a change gains where it is known what the memory of a device is for: by its categories when a request failed. Nothing is promised that the categories
//! do not show.

use stormlog_model::format_bytes;
use stormlog_model::gpu_category::Category;
use stormlog_model::memory::Memory;

/// A category of a smaller share is not where to begin.
const LEAST_SHARE: f64 = 0.3;

/// What to change about the largest category that can be changed, and what that frees.
pub(crate) fn of_categories(
    memory: Memory,
    categories: &[(String, u64)],
    world_size: Option<u64>,
) -> Option<String> {
    let total: u64 = categories.iter().map(|(_, bytes)| *bytes).sum();
    let (name, bytes) = categories.iter().max_by_key(|(_, bytes)| *bytes)?;
    if (*bytes as f64) < LEAST_SHARE * total as f64 || total == 0 {
        return None;
    }
    let is = |category: Category| name == category.name();
    let part =
        format!("{} {} of {} on {memory}", name.replace('_', " "), format_bytes(*bytes), format_bytes(total));
    if is(Category::Activations) {
        // They are results of the forward pass, one set for each sample of the batch.
        let half = format_bytes(bytes / 2);
        return Some(format!(
            "{part}: half the batch frees about {half}; activation checkpointing frees more"
        ));
    }
    if is(Category::OptimizerState) {
        let ranks = world_size.filter(|ranks| *ranks > 1);
        return Some(match ranks {
            Some(ranks) => {
                let freed = format_bytes(bytes - bytes / ranks);
                format!("{part}: sharding over {ranks} ranks frees {freed} on each")
            }
            None => {
                format!("{part}: an optimizer with less state (8-bit, Adafactor, SGD) frees a part of it")
            }
        });
    }
    if is(Category::Gradients) {
        return Some(format!(
            "{part}: zero_grad(set_to_none=True) before the forward pass frees up to {}",
            format_bytes(*bytes)
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_category_decides_and_its_gain_is_a_part_of_it() {
        let memory: Memory = "cuda:0".parse().unwrap();
        let of = |parts: &[(&str, u64)], ranks| {
            let parts: Vec<(String, u64)> =
                parts.iter().map(|(name, gib)| ((*name).to_owned(), gib << 30)).collect();
            of_categories(memory, &parts, ranks)
        };
        assert_eq!(
            of(&[("activations", 6), ("parameters", 3)], None).as_deref(),
            Some(
                "activations 6.00 GiB of 9.00 GiB on cuda:0: half the batch frees about 3.00 GiB; activation checkpointing frees more"
            )
        );
        let sharded = of(&[("optimizer_state", 8), ("parameters", 4)], Some(4)).unwrap();
        assert!(sharded.ends_with("sharding over 4 ranks frees 6.00 GiB on each"), "{sharded}");
        assert_eq!(of(&[("unknown", 6), ("activations", 1)], None), None, "nothing is known of most of it");
        assert_eq!(of(&[("activations", 2), ("parameters", 2), ("gradients", 2), ("inputs", 2)], None), None);
        assert_eq!(of(&[], None), None);
    }
}
