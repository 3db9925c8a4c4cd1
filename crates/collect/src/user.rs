//! The name of a user, by the system's own list. Users of a directory service are not in it: they are shown by number.

use std::io::{BufRead, BufReader, Read};

const FILE: &str = "/etc/passwd";
/// A list of users is not larger.
const MAX_BYTES: u64 = 4 << 20;

/// The name of a user in `/etc/passwd`.
#[must_use]
pub fn user_name(uid: u32) -> Option<String> {
    let file = std::fs::File::open(FILE).ok()?;
    let lines = BufReader::new(file.take(MAX_BYTES)).lines().map_while(Result::ok);
    lines.into_iter().find_map(|line| name_of(&line, uid))
}

fn name_of(line: &str, uid: u32) -> Option<String> {
    let mut parts = line.split(':');
    let (name, number) = (parts.next()?, parts.nth(1)?);
    (number.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_that_of_the_number() {
        assert_eq!(name_of("daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin", 1).as_deref(), Some("daemon"));
        assert_eq!(name_of("daemon:x:1:1:::", 2), None);
        assert_eq!(name_of("not a line", 0), None);
    }
}
