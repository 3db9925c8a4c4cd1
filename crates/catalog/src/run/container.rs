//! The container that a run was recorded in, for its identity and for readers of a later container.
//!
//! A kubelet mounts the termination log of each container instance from `…/pods/UID/containers/NAME/INSTANCE`, which every process in the container can
//! read in its mount table without any permission. Pod and namespace are in the variables that the downward API is usually mapped to.

use std::sync::OnceLock;

use serde_json::{Value, json};
use stormlog_model::Record;

/// What the downward API's fields are usually called in the environment.
const POD_NAME: [&str; 3] = ["POD_NAME", "MY_POD_NAME", "K8S_POD_NAME"];
const POD_NAMESPACE: [&str; 3] = ["POD_NAMESPACE", "MY_POD_NAMESPACE", "K8S_NAMESPACE"];
const POD_UID: [&str; 2] = ["POD_UID", "MY_POD_UID"];
const CONTAINER_NAME: [&str; 2] = ["CONTAINER_NAME", "MY_CONTAINER_NAME"];
const NODE_NAME: [&str; 2] = ["NODE_NAME", "MY_NODE_NAME"];
/// Longer names are not Kubernetes'.
const LONGEST: usize = 253;
/// More of a mount table is not read.
const MOST: u64 = 1 << 20;

/// A container of a pod. What is not known is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    /// The pod.
    pub pod: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// The pod's unique id.
    pub pod_uid: Option<String>,
    /// The container in it.
    pub name: Option<String>,
    /// Which of the containers of that name, each restart being another one.
    pub instance: Option<String>,
    /// The machine as the cluster calls it.
    pub node: Option<String>,
}

impl Container {
    /// That of this process.
    pub fn own() -> &'static Container {
        static OWN: OnceLock<Container> = OnceLock::new();
        OWN.get_or_init(|| {
            let mut table = Vec::new();
            if let Ok(file) = std::fs::File::open("/proc/self/mountinfo") {
                // What cannot be read is not known.
                let _ = std::io::Read::read_to_end(&mut std::io::Read::take(file, MOST), &mut table);
            }
            Container::of(&String::from_utf8_lossy(&table), &|name| std::env::var(name).ok())
        })
    }

    /// By a mount table and variables of the environment.
    fn of(mounts: &str, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let named = |names: &[&str]| {
            let values = names.iter().filter_map(|name| variable(name));
            values.map(|value| value.trim().to_owned()).find(|value| is_name(value))
        };
        let mounted = mounts.lines().find_map(instance);
        let [pod_uid, name, instance] = match mounted {
            Some(found) => found.map(Some),
            None => [None, None, None],
        };
        let (pod, pod_uid) = (named(&POD_NAME), pod_uid.or_else(|| named(&POD_UID)));
        // The other names are used outside of Kubernetes too.
        if pod.is_none() && pod_uid.is_none() {
            return Container::default();
        }
        let name = name.or_else(|| named(&CONTAINER_NAME));
        Container { pod, namespace: named(&POD_NAMESPACE), pod_uid, name, instance, node: named(&NODE_NAME) }
    }

    /// As `run.json` has it.
    pub(crate) fn of_record(record: &Record) -> Self {
        let container = record.get("container");
        let text = |key: &str| container.and_then(|own| own.get(key)?.as_str()).map(str::to_owned);
        Container {
            pod: text("pod"),
            namespace: text("namespace"),
            pod_uid: text("pod_uid"),
            name: text("name"),
            instance: text("instance"),
            node: text("node"),
        }
    }

    /// For `run.json`; null outside of a container.
    #[must_use]
    pub fn to_value(&self) -> Value {
        if *self == Container::default() {
            return Value::Null;
        }
        let Container { pod, namespace, pod_uid, name, instance, node } = self;
        json!({
            "pod": pod, "namespace": namespace, "pod_uid": pod_uid, "name": name, "instance": instance, "node": node,
        })
    }

    /// Whether `later` was started after this one had ended: a kubelet never runs two instances of a container at once.
    pub(crate) fn has_ended_before(&self, later: &Container) -> bool {
        let is_same = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
        let is_known = self.instance.is_some() && later.instance.is_some();
        is_known
            && is_same(&self.pod_uid, &later.pod_uid)
            && is_same(&self.name, &later.name)
            && self.instance != later.instance
    }
}

/// Pod, container and instance by a line of the mount table: the fourth word is the mounted file in its own file system.
fn instance(line: &str) -> Option<[String; 3]> {
    let root = line.split_ascii_whitespace().nth(3)?;
    let (_, below) = root.rsplit_once("/pods/")?;
    let mut parts = below.split('/');
    let (uid, containers, name, instance) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_whole = containers == "containers" && parts.next().is_none();
    (is_whole && [uid, name, instance].iter().all(|part| is_name(part)))
        .then(|| [uid, name, instance].map(str::to_owned))
}

/// Names of Kubernetes are letters, digits, `-`, `_` and `.`.
fn is_name(text: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= LONGEST && text.bytes().all(is_legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "5ce36b3b-5f34-4f0c-9f5e-2f0c0f6f6a11";

    fn mounts(name: &str, instance: &str) -> String {
        format!(
            "600 500 0:60 / / rw - overlay overlay rw\n\
             612 602 8:1 /var/lib/kubelet/pods/{UID}/containers/{name}/{instance} /dev/termination-log rw - ext4 /dev/sda1 rw\n"
        )
    }

    #[test]
    fn container_is_known_by_its_mount_table_and_the_downward_api() {
        let variable = |name: &str| match name {
            "POD_NAME" => Some("train-0".to_owned()),
            "POD_NAMESPACE" => Some("ml\n{}".to_owned()),
            _ => None,
        };
        let found = Container::of(&mounts("trainer", "0a1b2c3d"), &variable);
        assert_eq!(found.pod.as_deref(), Some("train-0"));
        assert_eq!(found.namespace, None, "what cannot be a name is not one");
        assert_eq!((found.pod_uid.as_deref(), found.name.as_deref()), (Some(UID), Some("trainer")));
        let Value::Object(record) = json!({"container": found.to_value()}) else { return };
        assert_eq!(Container::of_record(&record), found);
        let other = |name: &str| (name == "CONTAINER_NAME").then(|| "box".to_owned());
        assert_eq!(Container::of("", &other).to_value(), Value::Null, "no pod, no container of one");
    }

    #[test]
    fn instance_has_ended_before_another_of_the_same_container_only() {
        let of = |name: &str, instance: &str| Container::of(&mounts(name, instance), &|_| None);
        let first = of("trainer", "11111111");
        assert!(first.has_ended_before(&of("trainer", "22222222")));
        assert!(!first.has_ended_before(&first) && !first.has_ended_before(&of("sidecar", "22222222")));
        assert!(!first.has_ended_before(&Container::default()));
        assert!(!Container::default().has_ended_before(&Container::default()));
    }
}
