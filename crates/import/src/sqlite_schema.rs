//! The columns of a table, from the statement that made it: SQLite stores them nowhere else. Only names and the column that is the row's number matter.

/// A table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// The first page of its tree.
    pub(crate) root: u32,
    columns: Vec<String>,
    /// The column declared `INTEGER PRIMARY KEY`.
    pub(crate) row_number: Option<usize>,
}

impl Table {
    pub(crate) fn new(name: &str, root: u32, sql: &str) -> Self {
        let mut table = Table { name: name.to_owned(), root, columns: Vec::new(), row_number: None };
        for words in definitions(sql) {
            let Some(first) = words.first() else { continue };
            let is_constraint = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"]
                .iter()
                .any(|word| first.eq_ignore_ascii_case(word));
            if is_constraint {
                continue;
            }
            let is = |at: usize, word: &str| words.get(at).is_some_and(|it| it.eq_ignore_ascii_case(word));
            let has_key = (2..words.len()).any(|at| is(at, "PRIMARY") && is(at + 1, "KEY"));
            if is(1, "INTEGER") && has_key {
                table.row_number = Some(table.columns.len());
            }
            table.columns.push(first.clone());
        }
        table
    }

    /// The place of a column.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.eq_ignore_ascii_case(name))
    }
}

/// The words of each definition between the outer parentheses.
fn definitions(sql: &str) -> Vec<Vec<String>> {
    let (mut found, mut words, mut word) = (Vec::new(), Vec::new(), String::new());
    let mut depth = 0_usize;
    let mut letters = sql.chars().peekable();
    let end_word = |words: &mut Vec<String>, word: &mut String| {
        if !word.is_empty() {
            words.push(std::mem::take(word));
        }
    };
    while let Some(letter) = letters.next() {
        match letter {
            '-' if letters.peek() == Some(&'-') => {
                end_word(&mut words, &mut word);
                letters.by_ref().find(|letter| *letter == '\n');
            }
            '/' if letters.peek() == Some(&'*') => {
                end_word(&mut words, &mut word);
                letters.next();
                let mut before = ' ';
                letters
                    .by_ref()
                    .find(|letter| std::mem::replace(&mut before, *letter) == '*' && *letter == '/');
            }
            '"' | '`' | '\'' | '[' => {
                let close = if letter == '[' { ']' } else { letter };
                let quoted: String = letters.by_ref().take_while(|letter| *letter != close).collect();
                if depth == 1 {
                    word.push_str(&quoted);
                }
            }
            '(' => {
                depth += 1;
                if depth == 1 {
                    (words, word) = (Vec::new(), String::new());
                }
            }
            ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            ',' if depth == 1 => {
                end_word(&mut words, &mut word);
                found.push(std::mem::take(&mut words));
            }
            _ if depth != 1 => {}
            _ if letter.is_whitespace() => end_word(&mut words, &mut word),
            _ => word.push(letter),
        }
    }
    end_word(&mut words, &mut word);
    found.push(words);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_among_comments_quotes_and_constraints() {
        let sql = "CREATE TABLE \"a(b\" (\n -- ids, of (all)\n id INTEGER NOT NULL PRIMARY KEY, -- REFERENCES x(y)\n\
            /* a, b */ [two words] DECIMAL(10, 2) DEFAULT (1 + (2)), `c` TEXT CHECK (c IN ('x,', 'y')), d,\n\
            PRIMARY KEY (id, d), CONSTRAINT u UNIQUE (d))";
        let table = Table::new("t", 2, sql);
        assert_eq!(table.columns, ["id", "two words", "c", "d"]);
        assert_eq!(table.row_number, Some(0));
        assert_eq!(table.column("C"), Some(2));
    }

    #[test]
    fn only_an_integer_key_is_the_row_number() {
        assert_eq!(Table::new("t", 2, "CREATE TABLE t(id INT PRIMARY KEY, x)").row_number, None);
        assert_eq!(Table::new("t", 2, "CREATE TABLE t(x, id integer primary key)").row_number, Some(1));
        for sql in ["", "CREATE", "CREATE TABLE t", "((((", "t(a,,b", "t(--", "t(/*", "t('"] {
            let _ = Table::new("t", 2, sql);
        }
    }
}
