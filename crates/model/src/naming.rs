//! What the user would call the program that a command line starts: the script or the module, not the interpreter.
//!
//! For people to read. Must never decide what is run.

use std::ffi::OsStr;
use std::path::Path;

/// Programs that start the Python script among their arguments.
const LAUNCHERS: [&str; 3] = ["torchrun", "accelerate", "deepspeed"];
/// Programs that start the command among their arguments, as it is.
const WRAPPERS: [&str; 13] = [
    "env", "ionice", "mpiexec", "mpirun", "nice", "nohup", "numactl", "setsid", "srun", "stdbuf", "taskset",
    "time", "timeout",
];
/// Programs that run others and hold next to nothing themselves.
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox", "sudo"];
/// Options of Python whose value is the next word.
const WITH_VALUE: [&str; 3] = ["-W", "-X", "--check-hash-based-pycs"];

/// The name of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramName {
    /// `train.py`, `package.train`, `sleep`.
    pub word: String,
    is_module: bool,
}

impl ProgramName {
    /// Of a command line.
    #[must_use]
    pub fn of<S: AsRef<OsStr>>(command: &[S]) -> Self {
        let words: Vec<String> =
            command.iter().map(|word| word.as_ref().to_string_lossy().into_owned()).collect();
        let Some((first, rest)) = words.split_first() else { return ProgramName::file("program") };
        let name = base(first);
        let is_wrapper = WRAPPERS.contains(&name.as_str());
        let at = if is_wrapper { words.iter().position(|word| is_python(word)).unwrap_or(0) } else { 0 };
        let found = if is_python(&words[at]) {
            of_python(&words[at + 1..])
        } else if LAUNCHERS.contains(&name.as_str()) {
            rest.iter()
                .find(|word| Path::new(word).extension() == Some(OsStr::new("py")))
                .map(|word| ProgramName::file(word))
        } else {
            None
        };
        found.unwrap_or_else(|| ProgramName::file(&words[at]))
    }

    /// Of a process that a run of `program` started, by its own command line.
    #[must_use]
    pub fn of_worker<S: AsRef<OsStr>>(command: &[S], program: &str) -> Self {
        // A worker of `multiprocessing` runs the program's script, whose name is not in its own command line.
        let is_of_multiprocessing =
            |word: &S| word.as_ref().as_encoded_bytes().starts_with(b"from multiprocessing.");
        match command.iter().any(is_of_multiprocessing) {
            true => ProgramName { word: program.to_owned(), is_module: false },
            false => ProgramName::of(command),
        }
    }

    fn file(path: &str) -> Self {
        ProgramName { word: base(path), is_module: false }
    }

    /// For a directory's name: without the ending, and only letters a file name can always have.
    #[must_use]
    pub fn for_a_file(&self) -> String {
        const LONGEST: usize = 40;
        let stem = Path::new(&self.word).file_stem().filter(|_| !self.is_module);
        let name = stem.map_or_else(|| self.word.clone(), |stem| stem.to_string_lossy().into_owned());
        let safe = |letter: char| {
            if letter.is_ascii_alphanumeric() || "_-.".contains(letter) { letter } else { '_' }
        };
        let name: String = name.chars().map(safe).take(LONGEST).collect();
        if name.is_empty() { "program".to_owned() } else { name }
    }
}

/// Whether a command line starts a program that only starts others: a shell, `timeout`, `mpirun`.
#[must_use]
pub fn is_wrapper<S: AsRef<OsStr>>(command: &[S]) -> bool {
    let name = command.first().map(|word| base(&word.as_ref().to_string_lossy())).unwrap_or_default();
    [&SHELLS[..], &WRAPPERS, &LAUNCHERS].iter().any(|names| names.contains(&name.as_str()))
}

fn base(path: &str) -> String {
    Path::new(path).file_name().unwrap_or(OsStr::new(path)).to_string_lossy().into_owned()
}

fn is_python(word: &str) -> bool {
    let name = base(word);
    ["python", "pypy"].iter().any(|known| name.starts_with(known)) && !name.contains(".py")
}

/// By the arguments of Python; nothing when it runs code from the command line or from its input.
fn of_python(arguments: &[String]) -> Option<ProgramName> {
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        if WITH_VALUE.contains(&word.as_str()) {
            arguments.next();
        } else if word.starts_with("--") {
            // A long option has its value in the same word.
        } else if let Some(letters) = word.strip_prefix('-') {
            // `-um package` is `-u -m package`; what follows `m` or `c` in the word is their value.
            match letters.find(['m', 'c', 'W', 'X']) {
                Some(at) if letters[at..].starts_with('m') => {
                    let glued = Some(&letters[at + 1..]).filter(|rest| !rest.is_empty());
                    let module = glued.or_else(|| arguments.next().map(String::as_str))?;
                    return Some(ProgramName { word: module.to_owned(), is_module: true });
                }
                Some(at) if letters[at..].starts_with('c') => return None,
                _ if letters.is_empty() => return None,
                _ => {}
            }
        } else {
            return Some(ProgramName::file(word.trim_end_matches('/')));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(words: &[&str]) -> (String, String) {
        let name = ProgramName::of(words);
        (name.word.clone(), name.for_a_file())
    }

    #[test]
    fn a_program_is_called_what_matters() {
        for (words, word, file) in [
            (&["python", "-u", "train.py", "--x", "y.py"][..], "train.py", "train"),
            (&["/usr/bin/python3.12", "a b/train job.py"], "train job.py", "train_job"),
            (&["python3", "-m", "package.train", "a.py"], "package.train", "package.train"),
            (&["python3", "-Wignore", "-X", "dev", "-um", "train", "a.py"], "train", "train"),
            (&["python3", "-mtrain", "a.py"], "train", "train"),
            (&["python3", "-c", "print(1)", "a.py"], "python3", "python3"),
            (&["python3", "-", "a.py"], "python3", "python3"),
            (&["python3"], "python3", "python3"),
            (&["python3", "app.pyz"], "app.pyz", "app"),
            (&["python3", "package/"], "package", "package"),
            (&["timeout", "9", "python3", "train.py"], "train.py", "train"),
            (&["torchrun", "--nproc-per-node", "2", "train.py", "x.py"], "train.py", "train"),
            (&["./build/sim.exe"], "sim.exe", "sim"),
            (&["bash", "run.py"], "bash", "bash"),
            (&["cp", "a.py", "b.py"], "cp", "cp"),
            (&["./python_is_fun.py"], "python_is_fun.py", "python_is_fun"),
            (&["/"], "/", "_"),
            (&[], "program", "program"),
        ] {
            assert_eq!(named(words), (word.to_owned(), file.to_owned()), "{words:?}");
        }
    }
}
