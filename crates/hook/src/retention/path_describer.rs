//! A path in words: the variable, what it is, and whose it is. What the objects are to each other is in `relations`.
//!
//! Keys of dictionaries are data of the program: only ones that look like names are written. Must never ask an object for its own words.

use super::graph::{Graph, LONGEST_PATH};
use super::kinds::{Kind, Kinds};
use super::line::Line;
use super::python::{Object, Python, Type};
use super::relations::Chain;
use super::roots::{Root, Roots, Sort, variables_of};
use stormlog_stack::python::{CodeSink, FrameVariables, Text};

/// Elements of a collection that are looked at for their type.
const ELEMENTS: usize = 64;
/// Objects of a cycle that are written.
const LONGEST_CYCLE: usize = 6;

/// What is needed to describe paths.
pub struct PathDescriber<'w, 'k> {
    pub python: &'w Python,
    pub kinds: &'w mut Kinds<'k>,
    pub graph: &'w Graph<'w>,
    pub roots: &'w Roots<'w>,
}

impl PathDescriber<'_, '_> {
    /// The whole sentence of a chain.
    pub fn sentence(&mut self, chain: &Chain, line: &mut Line<'_>) {
        let first = chain.nodes[0];
        if chain.length == 0 {
            return;
        }
        if !self.graph.is_rooted(first) {
            return self.unrooted(first, line);
        }
        // A frame that a traceback or a generator keeps: its variable is what the program's author knows.
        let frame = (1..=chain.holder.max(chain.length - 1).min(chain.length - 1)).rev().find(|at| {
            let object = self.graph.object(chain.nodes[*at]);
            *at + 1 < chain.length
                && object.is_some_and(|object| matches!(self.kind(object), Kind::Frame | Kind::Generator))
        });
        if let Some(at) = frame {
            self.kept_frame(chain, at, line);
        }
        let outer = match frame {
            // Not the frame itself: the exception whose traceback has it, or the generator.
            Some(at) if chain.holder >= at => (0..=at)
                .find(|before| {
                    let object = self.graph.object(chain.nodes[*before]);
                    object
                        .is_some_and(|object| matches!(self.kind(object), Kind::Exception | Kind::Generator))
                })
                .unwrap_or(at),
            _ => chain.holder,
        };
        self.holding(chain, outer, line);
    }

    /// "`data`, a bytearray, in the frame of load() at app.py:10 that the traceback of ValueError keeps: "
    fn kept_frame(&mut self, chain: &Chain, at: usize, line: &mut Line<'_>) {
        let objects = (self.graph.object(chain.nodes[at]), self.graph.object(chain.nodes[at + 1]));
        let (Some(owner), Some(value)) = objects else { return };
        let kind = self.kind(owner);
        let Some(variables) = self.frame_variables(owner, kind) else { return };
        line.push(b"`");
        let index = (0..variables.variables).find(|index| {
            // SAFETY: the GIL is held since the frame was found.
            unsafe { variables.word(*index) == value.address() }
        });
        match index.and_then(|index| self.python.variable_name(variables.code, index)) {
            Some(name) => line.name(name),
            None => line.push(b"?"),
        };
        line.push(b"`, ");
        self.noun(value, line);
        if kind == Kind::Generator {
            line.push(b", local of the suspended generator ");
            self.place(variables, 0, line);
        } else {
            line.push(b", local of ");
            self.place(variables, 0, line);
            line.push(b", whose frame is kept by ");
            let exception = (0..at).rev().find_map(|before| {
                let object = self.graph.object(chain.nodes[before])?;
                (self.kind(object) == Kind::Exception).then_some(object)
            });
            match exception {
                Some(exception) => line.push(b"the traceback of ").name(exception.class().short_name()),
                None => line.push(b"a traceback"),
            };
        }
        line.push(b", in ");
    }

    /// "`losses`, a list of 812 tensors, local of train() at train.py:31"
    fn holding(&mut self, chain: &Chain, holder: usize, line: &mut Line<'_>) {
        let root = self.graph.root(chain.nodes[0]);
        line.push(b"`");
        let begin = line.length();
        let mut at = self.root_name(chain, root, holder, line);
        while at < holder {
            at = self.step(chain, at, line);
        }
        if line.length() == begin {
            line.shorten(begin.saturating_sub(1)); // nothing has a name
        } else {
            line.push(b"`, ");
        }
        if let Some(object) = self.graph.object(chain.nodes[holder]) {
            self.noun(object, line);
        }
        line.push(b", ");
        self.root_place(chain, root, line);
    }

    /// The name at the root; gives the place in the chain that it names.
    fn root_name(&mut self, chain: &Chain, root: Root, holder: usize, line: &mut Line<'_>) -> usize {
        let object =
            |at: usize| chain.nodes[..chain.length].get(at).and_then(|node| self.graph.object(*node));
        let (first, second, third) = (object(0), object(1), object(2));
        match root.sort {
            Sort::Variable => {
                let frame = self.roots.frame(root);
                let name = frame.and_then(|frame| {
                    self.python.variable_name(frame.variables.code, usize::from(root.variable))
                });
                line.name(name.unwrap_or(b"?"));
                0
            }
            Sort::Globals => {
                if let (Some(dictionary), Some(value)) = (first, second) {
                    line.name(self.key_of(dictionary, value).unwrap_or(b"?"));
                }
                1
            }
            Sort::Class => {
                if let Some(class) = first {
                    line.name(Type::of(class).short_name());
                }
                let is_dictionary = second.is_some_and(|second| self.kind(second) == Kind::Dict);
                if let (true, Some(dictionary), Some(value)) = (is_dictionary, second, third) {
                    line.push(b".").name(self.key_of(dictionary, value).unwrap_or(b"?"));
                    return 2;
                }
                1.min(holder)
            }
            Sort::Function => self.function_name(first, second, third, line).min(holder.max(1)),
            Sort::Module => 1.min(holder),
            Sort::Temporary | Sort::None => 0,
        }
    }

    /// The variable of a closure, of the defaults or of the attributes of a function.
    fn function_name(
        &mut self,
        function: Option<Object>,
        part: Option<Object>,
        inner: Option<Object>,
        line: &mut Line<'_>,
    ) -> usize {
        let (Some(function), Some(part)) = (function, part) else { return 0 };
        let Some(inner) = inner else { return 1 };
        let python = self.python;
        // SAFETY: a live function; the references are borrowed but for the names, which are given back.
        unsafe {
            if (python.call.function_closure)(function.address()) == part.address() {
                let code = (python.call.function_code)(function.address());
                let index = (0..part.length()).find(|index| python.item(part, *index) == Some(inner));
                match (Object::of((python.call.free_variables)(code)), index) {
                    (Some(names), Some(index)) => {
                        line.name(python.item(names, index).map_or(b"?", |name| python.text(name)));
                        python.release(names);
                    }
                    _ => (python.call.clear_error)(),
                }
                return 3; // the cell, then its value
            }
        }
        match self.kind(part) {
            Kind::Dict => {
                line.name(self.key_of(part, inner).unwrap_or(b"?"));
                2
            }
            Kind::Tuple => 2, // a default, whose name is not looked for
            _ => 1,
        }
    }

    /// One step from an object of the chain to the next, as an expression.
    fn step(&mut self, chain: &Chain, at: usize, line: &mut Line<'_>) -> usize {
        let object =
            |at: usize| chain.nodes[..chain.length].get(at).and_then(|node| self.graph.object(*node));
        let (Some(owner), Some(value)) = (object(at), object(at + 1)) else { return at + 1 };
        let after = object(at + 2);
        match self.kind(owner) {
            Kind::Dict => {
                match self.key_of(owner, value).filter(|key| is_name(key)) {
                    Some(key) => line.push(b"['").name(key).push(b"']"),
                    None => line.push("[…]".as_bytes()),
                };
            }
            Kind::List | Kind::Tuple | Kind::Set | Kind::Deque | Kind::LruCache => {
                line.push("[…]".as_bytes());
            }
            Kind::Instance | Kind::Exception | Kind::Module => {
                if self.kind(value) == Kind::Dict
                    && self.is_dictionary_of(owner, value)
                    && let Some(after) = after
                {
                    line.push(b".").name(self.key_of(value, after).unwrap_or(b"?"));
                    return at + 2;
                }
                let is_hidden = matches!(self.kind(value), Kind::Traceback | Kind::Frame);
                if !is_hidden {
                    match self.attribute_of(owner, value) {
                        Some(name) => line.push(b".").name(name),
                        None => line.push(".…".as_bytes()),
                    };
                }
            }
            _ => {}
        }
        at + 1
    }

    /// "a list of 812 tensors"
    fn noun(&mut self, object: Object, line: &mut Line<'_>) {
        let kind = self.kind(object);
        let class = object.class().short_name();
        match kind {
            Kind::LruCache => {
                line.push(b"an lru_cache");
            }
            Kind::List | Kind::Tuple | Kind::Set | Kind::Deque | Kind::Dict => {
                line.push(article(class)).name(class).push(b" of ");
                let count = self.count(object, kind);
                line.count(count as u64).push(b" ");
                self.element_noun(object, kind, count, line);
            }
            Kind::Tensor => {
                line.push(b"a tensor");
            }
            Kind::NdArray => {
                line.push(b"an array");
            }
            Kind::Bytes => {
                line.push(b"a bytes object");
            }
            Kind::Text => {
                line.push(b"a string");
            }
            _ => {
                line.push(article(class)).name(class);
            }
        }
    }

    /// What most of the first elements are.
    fn element_noun(&mut self, object: Object, kind: Kind, count: usize, line: &mut Line<'_>) {
        let mut types = [(0_usize, 0_usize); 8];
        let mut sample = [None; 8];
        let mut seen = 0;
        let mut note = |element: Object| {
            seen += 1;
            let class = element.kind_address();
            if let Some(at) = types.iter().position(|(known, _)| *known == class || *known == 0) {
                types[at] = (class, types[at].1 + 1);
                sample[at] = Some(element);
            }
            seen < ELEMENTS
        };
        match kind {
            Kind::Dict => self.python.entries(object, ELEMENTS, |_, value| note(value)),
            Kind::List => {
                let items = object.word(24);
                for index in 0..count.min(ELEMENTS) {
                    // SAFETY: a list has as many items as it says; each is null or live.
                    if let Some(item) = unsafe { Object::of(*(items as *const usize).add(index)) } {
                        note(item);
                    }
                }
            }
            Kind::Tuple => {
                let python = self.python;
                (0..count.min(ELEMENTS)).filter_map(|index| python.item(object, index)).for_each(|item| {
                    note(item);
                });
            }
            Kind::Set => {
                let (table, places) = (object.word(40), (object.word(32) + 1).min(4096));
                for place in 0..places {
                    // SAFETY: the table of a set has mask + 1 entries of key and hash; a removed one's key is a live dummy.
                    if let Some(item) = unsafe { Object::of(*(table as *const usize).add(place * 2)) }
                        && !note(item)
                    {
                        break;
                    }
                }
            }
            _ => {}
        }
        let most = (0..types.len()).max_by_key(|at| types[*at].1).unwrap_or(0);
        let is_most = types[most].1 * 2 > seen && seen > 0;
        let plural: &[u8] = if count == 1 { b"" } else { b"s" };
        let Some(element) = sample[most].filter(|_| is_most) else {
            line.push(if kind == Kind::Dict {
                b"entries"
            } else if kind == Kind::Deque {
                b"items"
            } else {
                b"objects"
            });
            return;
        };
        match self.kind(element) {
            Kind::Tensor => line.push(b"tensor").push(plural),
            Kind::NdArray => line.push(b"array").push(plural),
            Kind::Bytes => line.push(b"`bytes` object").push(plural),
            Kind::Text => line.push(b"string").push(plural),
            Kind::Atom => line.push(b"number").push(plural),
            Kind::Instance => line.name(element.class().short_name()).push(b" object").push(plural),
            _ => line.name(element.class().short_name()).push(plural),
        };
    }

    /// "local of train() at train.py:31"
    fn root_place(&mut self, chain: &Chain, root: Root, line: &mut Line<'_>) {
        let first = self.graph.object(chain.nodes[0]);
        match root.sort {
            Sort::Variable | Sort::Temporary => {
                line.push(if root.sort == Sort::Variable { b"local of " } else { b"in use by " });
                if let Some(frame) = self.roots.frame(root) {
                    self.place(frame.variables, frame.line, line);
                }
            }
            Sort::Globals => {
                let name = first.and_then(|dictionary| self.roots.module_name(dictionary));
                line.push(b"global of ").name(name.map_or(b"?", |name| self.python.text(name)));
            }
            Sort::Class => {
                line.push(b"class attribute");
                let dictionary = first.and_then(|class| Type::of(class).dictionary());
                if let Some(module) = dictionary.and_then(|dictionary| self.entry(dictionary, b"__module__"))
                {
                    line.push(b" in ").name(module);
                }
            }
            Sort::Function => {
                let Some(function) = first else { return };
                // SAFETY: a live function; the references are borrowed.
                let (code, closure) = unsafe {
                    let call = &self.python.call;
                    ((call.function_code)(function.address()), (call.function_closure)(function.address()))
                };
                let part = chain.nodes[..chain.length].get(1).and_then(|node| self.graph.object(*node));
                let is_closure = part.is_some_and(|part| part.address() == closure);
                let is_default = !is_closure && part.is_some_and(|part| self.kind(part) == Kind::Tuple);
                line.push(match (is_closure, is_default) {
                    (true, _) => b"closure of ".as_slice(),
                    (_, true) => b"default argument of ",
                    _ => b"attribute of ",
                });
                self.code_place(code, 0, line);
            }
            Sort::Module => {
                line.push(b"state of a module");
            }
            Sort::None => {}
        }
    }

    /// The string under a key, among the first entries.
    fn entry(&mut self, dictionary: Object, wanted: &[u8]) -> Option<&'static [u8]> {
        let python = self.python;
        let mut found = None;
        python.entries(dictionary, 64, |key, value| {
            if python.text(key) == wanted {
                found = Some(python.text(value));
            }
            found.is_none()
        });
        found
    }

    /// "train() at train.py:31"
    fn place(&mut self, variables: FrameVariables, line_number: u32, line: &mut Line<'_>) {
        let number = match line_number {
            0 => {
                // SAFETY: a live code object; two bytes a unit.
                let number = unsafe { (self.python.call.line)(variables.code, (variables.unit * 2) as i32) };
                number.max(0) as u32
            }
            known => known,
        };
        self.code_place(variables.code, number, line);
    }

    fn code_place(&mut self, code: usize, line_number: u32, line: &mut Line<'_>) {
        struct LineSink<'p, 'l>(&'p mut Line<'l>, u32);
        impl CodeSink for LineSink<'_, '_> {
            fn code(&mut self, name: Text<'_>, file: Text<'_>, first_line: u32, _: &[u8]) {
                let name = if name.kind == 1 { name.bytes } else { b"?" };
                let name = name.rsplit(|byte| *byte == b'.').next().unwrap_or(name);
                let file = if file.kind == 1 { file.bytes } else { b"?" };
                let file = file.rsplit(|byte| *byte == b'/').next().unwrap_or(file);
                self.0.name(name);
                if !name.starts_with(b"<") {
                    self.0.push(b"()");
                }
                let number = if self.1 == 0 { first_line } else { self.1 };
                self.0.push(b" at ").name(file).push(b":").number(u64::from(number));
            }
        }
        // SAFETY: a code object that its frame or function keeps alive while the GIL is held.
        unsafe { self.python.interpreter.describe(code, &mut LineSink(line, line_number)) };
    }

    /// The frame of a frame object or of a generator, in which it is somewhere behind the head.
    fn frame_variables(&mut self, owner: Object, kind: Kind) -> Option<FrameVariables> {
        let python = self.python;
        if kind == Kind::Frame {
            // SAFETY: `kind` says that it is a frame, and an `Object` is alive (`Object::of`).
            return unsafe { variables_of(python, owner) };
        }
        // SAFETY: a generator is as large as its type says, and its frame is inside it; a word is only compared before it is followed: what is
        // where a frame has its code is a field of the generator, null or an object.
        unsafe {
            let size = owner.class().basic_size();
            let is_code = |address: usize| {
                Object::of(address)
                    .is_some_and(|code| code.address() > 4096 && code.kind_address() == python.types.code)
            };
            let starts = (24..size.saturating_sub(40)).step_by(8).map(|offset| owner.address() + offset);
            let mut frames = starts.filter(|at| python.interpreter.is_generator_frame(*at, is_code));
            frames.next().and_then(|frame| python.interpreter.variables_of(frame))
        }
    }

    /// What no root was found for: native code keeps it, or it keeps itself.
    fn unrooted(&mut self, first: usize, line: &mut Line<'_>) {
        let mut nodes = [0; LONGEST_PATH];
        let mut length = 0;
        let mut at = Some(first);
        while let Some(node) = at
            && length < LONGEST_PATH
        {
            if let Some(start) = nodes[..length].iter().position(|known| *known == node) {
                return self.cycle(&nodes[start..length], line);
            }
            nodes[length] = node;
            length += 1;
            at = self.graph.referrer(node);
        }
        let last = nodes[length.saturating_sub(1)];
        let is_followed = self.graph.is_followed(last);
        if let Some(object) = self.graph.object(last) {
            self.noun(object, line);
        }
        line.push(if is_followed {
            b", kept by native code (no Python object refers to it)".as_slice()
        } else {
            b" (its referrers were not found in the time allowed)"
        });
    }

    /// "cycle Node → Node": the objects of a cycle from one to the next that it refers to, dictionaries of instances left out.
    fn cycle(&mut self, nodes: &[usize], line: &mut Line<'_>) {
        line.push(b"cycle ");
        let mut written = 0;
        let mut first: &[u8] = b"";
        for node in nodes.iter().rev() {
            let Some(object) = self.graph.object(*node) else { continue };
            let kind = self.kind(object);
            if nodes.len() > 1
                && matches!(kind, Kind::Dict | Kind::Cell | Kind::Tuple)
                && written + 1 < nodes.len()
            {
                continue;
            }
            if written > 0 {
                line.push(" → ".as_bytes());
            } else {
                first = object.class().short_name();
            }
            written += 1;
            if written > LONGEST_CYCLE {
                line.push("…".as_bytes());
                break;
            }
            line.name(object.class().short_name());
        }
        if written > 0 {
            line.push(" → ".as_bytes()).name(first);
        }
    }

    /// The steps from the root to an object, one text each.
    pub fn steps(&mut self, chain: &Chain, mut step: impl FnMut(&[u8]), line: &mut Line<'_>) {
        for at in 0..chain.length {
            let Some(object) = self.graph.object(chain.nodes[at]) else { continue };
            line.clear();
            if at == 0 {
                let root = self.graph.root(chain.nodes[0]);
                self.root_place(chain, root, line);
                if !line.is_empty() {
                    step(line.text());
                    line.clear();
                }
            }
            self.noun(object, line);
            step(line.text());
        }
    }
}

pub(super) fn is_name(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !text.is_empty()
        && text.len() <= 40
        && text.iter().all(is_part)
        && text.first().is_some_and(|byte| !byte.is_ascii_digit())
}

fn article(noun: &[u8]) -> &'static [u8] {
    match noun.first() {
        Some(b'a' | b'e' | b'i' | b'o' | b'A' | b'E' | b'I' | b'O') => b"an ",
        _ => b"a ",
    }
}
