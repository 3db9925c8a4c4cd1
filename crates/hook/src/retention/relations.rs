//! What the objects of a path are to each other: which is a collection, under which name one object holds another. Must never call code of the
//! program.

use super::graph::LONGEST_PATH;
use super::kinds::Kind;
use super::path_describer::{PathDescriber, is_name};
use super::python::{Object, Type};
use super::roots::{Sort, is_ours};

/// Entries of a dictionary that are searched for a value.
const MOST_ENTRIES: usize = 200_000;
/// A dictionary with no more entries, whose key is a name, is a record; a larger one is a collection.
const LARGEST_RECORD: usize = 32;

/// The chain of one path, and the place in it where samples are put together.
pub struct Chain {
    pub(super) nodes: [usize; LONGEST_PATH],
    pub(super) length: usize,
    /// Place of the first collection, or of the last object.
    pub holder: usize,
}

impl Chain {
    pub fn key(&self) -> usize {
        self.nodes[self.holder]
    }
}

impl PathDescriber<'_, '_> {
    pub(super) fn kind(&mut self, object: Object) -> Kind {
        self.kinds.of(self.python, object).0
    }

    pub fn is_tensor(&mut self, node: usize) -> bool {
        self.graph.object(node).is_some_and(|object| self.kind(object) == Kind::Tensor)
    }

    /// Whether a function of the code that looks keeps it.
    pub fn is_ours(&self, chain: &Chain) -> bool {
        let first = chain.nodes[0];
        let function = self.graph.object(first).filter(|_| self.graph.root(first).sort == Sort::Function);
        // SAFETY: a live function has a code object.
        let code = function.map(|function| unsafe { (self.python.call.function_code)(function.address()) });
        code.is_some_and(|code| code != 0 && is_ours(self.python, code))
    }

    /// The path of a node.
    pub fn chain(&mut self, node: usize) -> Chain {
        let mut nodes = [0; LONGEST_PATH];
        let length = self.graph.path(node, &mut nodes);
        let last = length.saturating_sub(1);
        let holder = (0..length).find(|at| self.is_collection(&nodes, *at)).unwrap_or(last);
        Chain { nodes, length, holder }
    }

    /// Whether an object of a path holds many things of one sort, as against a record with one thing for each name.
    pub(super) fn is_collection(&mut self, nodes: &[usize; LONGEST_PATH], at: usize) -> bool {
        let Some(object) = self.graph.object(nodes[at]) else { return false };
        let before = at.checked_sub(1).and_then(|before| self.graph.object(nodes[before]));
        match self.kind(object) {
            Kind::List | Kind::Set | Kind::Deque | Kind::LruCache => true,
            Kind::Tuple => {
                object.length() > 1 && !before.is_some_and(|before| self.is_part_of_function(before))
            }
            Kind::Dict => {
                let is_namespace = self.graph.root(nodes[at]).sort == Sort::Globals
                    || before.is_some_and(|before| self.has_namespace(before, object));
                !is_namespace && !self.is_record(object, nodes.get(at + 1).copied())
            }
            _ => false,
        }
    }

    /// Whether a dictionary is that of an instance, a class, a function or a module.
    pub(super) fn has_namespace(&mut self, owner: Object, dictionary: Object) -> bool {
        let kind = self.kind(owner);
        matches!(kind, Kind::Instance | Kind::Type | Kind::Function | Kind::Exception | Kind::Module)
            && self.is_dictionary_of(owner, dictionary)
    }

    /// Whether a dictionary is small and has the value under a name.
    pub(super) fn is_record(&mut self, dictionary: Object, value: Option<usize>) -> bool {
        let value = value.and_then(|value| self.graph.object(value));
        self.count(dictionary, Kind::Dict) <= LARGEST_RECORD
            && value.and_then(|value| self.key_of(dictionary, value)).is_some_and(is_name)
    }

    pub(super) fn is_part_of_function(&mut self, object: Object) -> bool {
        self.kind(object) == Kind::Function
    }

    pub(super) fn is_dictionary_of(&mut self, owner: Object, dictionary: Object) -> bool {
        if self.kind(owner) == Kind::Type {
            return Type::of(owner).dictionary() == Some(dictionary);
        }
        let mut is_it = false;
        self.python.with_instance_dictionary(owner, |found| is_it = found == dictionary);
        is_it
    }

    /// Entries or items.
    pub(super) fn count(&mut self, object: Object, kind: Kind) -> usize {
        match kind {
            // SAFETY: `kind` says that it is a dictionary, and an `Object` is alive (`Object::of`).
            Kind::Dict => unsafe { (self.python.call.dict_size)(object.address()) },
            Kind::Set => object.word(24),
            Kind::LruCache => 0,
            _ => object.length(),
        }
    }

    /// The key of a value, where it is a plain string; `None` where the value is not there.
    pub(super) fn key_of(&mut self, dictionary: Object, value: Object) -> Option<&'static [u8]> {
        let mut name = None;
        let python = self.python;
        python.entries(dictionary, MOST_ENTRIES, |key, found| {
            if found == value {
                name = Some(python.text(key));
            }
            found != value
        });
        name
    }

    /// The name of the attribute by which an instance has a value.
    pub(super) fn attribute_of(&mut self, owner: Object, value: Object) -> Option<&'static [u8]> {
        let mut name = None;
        let python = self.python;
        python.with_instance_dictionary(owner, |dictionary| {
            python.entries(dictionary, MOST_ENTRIES, |key, found| {
                if found == value {
                    name = Some(python.text(key));
                }
                found != value
            });
        });
        name.filter(|name: &&[u8]| !name.is_empty()).or_else(|| self.slot_of(owner, value))
    }

    /// The same for a class with `__slots__`.
    pub(super) fn slot_of(&mut self, owner: Object, value: Object) -> Option<&'static [u8]> {
        let python = self.python;
        let mut name = None;
        let mut class = Some(owner.class());
        for _ in 0..16 {
            let Some(one) = class else { break };
            if one.has(super::python::flag::HEAP_TYPE)
                && let Some(dictionary) = one.dictionary()
            {
                python.entries(dictionary, 1000, |key, member| {
                    if member.kind_address() == python.types.member {
                        // SAFETY: a member has its definition: name, type, offset.
                        let offset = unsafe { *((member.word(40) + 16) as *const usize) };
                        let is_inside = offset >= 16 && offset + 8 <= owner.class().basic_size();
                        if is_inside && owner.word(offset) == value.address() {
                            name = Some(python.text(key));
                        }
                    }
                    name.is_none()
                });
            }
            class = one.base();
        }
        name
    }
}
