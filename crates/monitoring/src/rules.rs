//! The alert rules. The file is `assets/rules.yml`; the Kubernetes form is the same text inside a resource.

/// The system that reads the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleFormat {
    /// A file for `rule_files:` of Prometheus.
    Prometheus,
    /// A `PrometheusRule` of the Prometheus operator.
    Kubernetes,
}

const RULES: &str = include_str!("../assets/rules.yml");
const RESOURCE: &str = "\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: stormlog
  labels:
    app.kubernetes.io/name: stormlog
spec:
";

/// The rules as a file.
#[must_use]
pub fn rules(format: RuleFormat) -> String {
    match format {
        RuleFormat::Prometheus => RULES.to_owned(),
        RuleFormat::Kubernetes => resource(),
    }
}

/// YAML's blocks are indentation: the groups two columns further in are the same groups below `spec`.
fn resource() -> String {
    let (comments, groups) = RULES.split_at(RULES.find("groups:").unwrap_or(0));
    let mut text = format!("{comments}{RESOURCE}");
    for line in groups.lines() {
        if !line.is_empty() {
            text.push_str("  ");
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alert_has_what_a_person_on_call_needs() {
        let alerts: Vec<&str> = RULES.split("- alert: ").skip(1).collect();
        assert!(alerts.len() >= 10);
        for alert in alerts {
            let name = alert.lines().next().unwrap_or_default();
            for part in ["severity: ", "summary: ", "description: ", "$value", "runbook_url: "] {
                assert!(alert.contains(part), "{name} has no {part}");
            }
            let anchor = format!("docs/alerts.md#{}\n", name.to_lowercase());
            assert!(alert.contains(&anchor), "{name} links to another section");
        }
    }

    #[test]
    fn every_alert_has_its_section_in_the_documentation() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/alerts.md");
        let page = std::fs::read_to_string(page).unwrap_or_default();
        for alert in RULES.split("- alert: ").skip(1) {
            let name = alert.lines().next().unwrap_or_default();
            assert!(page.contains(&format!("### {name}\n")), "docs/alerts.md has no section {name}");
        }
    }

    #[test]
    fn resource_holds_the_same_rules_two_columns_further_in() {
        let text = rules(RuleFormat::Kubernetes);
        let (_, spec) = text.split_once("\nspec:\n").unwrap();
        let back: String =
            spec.lines().map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line))).collect();
        assert!(RULES.ends_with(&back));
    }
}
