//! The rules of schemas 2, 3 and 4, applied to one record.
//!
//! Problems come out in the order in which 0.4.3 would have found them, so the first one is the one it raises;
//! unlike it we continue and report the rest. A record without a `schema_version` is legacy and not judged here.

use serde_json::Value;

use crate::capability::Capabilities;
use crate::identity::{IDENTITY_KEYS, IdentityInputs};
use crate::record::{get, integer, non_empty, optional_integer, optional_string};
use crate::{Counter, Counters, FIELDS, Field, Problem, Record, Schema, resolve_identity};

/// The first problem of a record, as an error.
pub fn validate_record(record: &Record) -> Result<(), Problem> {
    check_record(record).into_iter().next().map_or(Ok(()), Err)
}

/// Every problem of a record; empty when it is valid.
pub fn check_record(record: &Record) -> Vec<Problem> {
    let schema = match schema_of(record) {
        Ok(schema) => schema,
        Err(problem) => return vec![problem],
    };
    let mut check = Check { record, schema, problems: Vec::new() };
    check.shape();
    check.process();
    check.identity_fields();
    check.field(Field::DeviceId, |value, name| integer(value, name).map(drop));
    let counters = check.counters();
    check.field(Field::Context, |value, name| optional_string(value, name).map(drop));
    check.metadata(&counters);
    check.identity();
    check.problems
}

/// The schema a record declares.
pub(crate) fn schema_of(record: &Record) -> Result<Schema, Problem> {
    let number = integer(get(record, "schema_version"), "schema_version")?;
    i64::try_from(number)
        .ok()
        .and_then(Schema::from_number)
        .ok_or_else(|| Problem::at("schema_version", format!("Unsupported schema_version: {number}")))
}

struct Check<'a> {
    record: &'a Record,
    schema: Schema,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn shape(&mut self) {
        let missing: Vec<&str> = FIELDS
            .iter()
            .filter(|(field, name)| field.is_required_in(self.schema) && !self.record.contains_key(*name))
            .map(|(_, name)| *name)
            .collect();
        if !missing.is_empty() {
            let message = format!("Missing required telemetry fields: {}", missing.join(", "));
            self.problems.push(Problem { field: Some(missing[0].to_owned()), message });
        }
        let mut unknown: Vec<&str> = self
            .record
            .keys()
            .map(String::as_str)
            .filter(|key| !Field::of_name(key).is_some_and(|field| field.is_known_in(self.schema)))
            .collect();
        if !unknown.is_empty() {
            unknown.sort_unstable();
            let message = format!("Unknown telemetry fields: {}", unknown.join(", "));
            self.problems.push(Problem { field: Some(unknown[0].to_owned()), message });
        }
        if self.schema.has_session() {
            self.text(Field::SessionId);
        }
    }

    fn process(&mut self) {
        self.at_least(Field::TimestampNs, 0);
        self.text(Field::EventType);
        self.text(Field::Collector);
        self.at_least(Field::SamplingIntervalMs, 0);
        self.at_least(Field::Pid, -1);
        self.text(Field::Host);
    }

    fn identity_fields(&mut self) {
        self.field(
            Field::JobId,
            |value, name| {
                if value.is_null() { Ok(()) } else { non_empty(value, name).map(drop) }
            },
        );
        self.at_least(Field::Rank, 0);
        self.at_least(Field::LocalRank, 0);
        self.at_least(Field::WorldSize, 1);
    }

    /// Checks the counters and gives them back as far as they are good.
    fn counters(&mut self) -> Counters {
        let mut counters = Counters::UNKNOWN;
        for side in [&Counter::ALL[..5], &Counter::ALL[5..]] {
            let mut values = [None; 8];
            for counter in side {
                let Some(value) = self.record.get(counter.field().name()) else { continue };
                let nullable = self.schema == Schema::V4 || !counter.is_core();
                let name = counter.field().name();
                let read =
                    if nullable { optional_integer(value, name) } else { integer(value, name).map(Some) };
                match read {
                    Ok(number) => values[*counter as usize] = number,
                    Err(problem) => self.problems.push(problem),
                }
            }
            for counter in side {
                if let Some(number) = values[*counter as usize] {
                    self.counter_range(*counter, number, &mut counters);
                }
            }
        }
        if let Some(total) = counters.get(Counter::Total) {
            for counter in [Counter::Used, Counter::Free] {
                if counters.get(counter).is_some_and(|value| value > total) {
                    let name = counter.field().name();
                    self.problems.push(Problem::of(name, "cannot exceed device_total_bytes"));
                }
            }
        }
        counters
    }

    fn counter_range(&mut self, counter: Counter, number: i128, counters: &mut Counters) {
        let name = counter.field().name();
        if counter == Counter::Change {
            match i64::try_from(number) {
                Ok(change) => counters.set_change(Some(change)),
                Err(_) => self.problems.push(Problem::of(name, "must be at most 9223372036854775807")),
            }
            return;
        }
        match u64::try_from(number) {
            Ok(value) => counters.set(counter, Some(value)),
            Err(_) if counter.is_core() => self.problems.push(Problem::of(name, "must be >= 0")),
            Err(_) => self.problems.push(Problem::of(name, "must be >= 0 when provided")),
        }
    }

    fn metadata(&mut self, counters: &Counters) {
        match self.record.get("metadata") {
            None => {}
            Some(Value::Object(metadata)) if self.schema == Schema::V4 => {
                if let Some(capabilities) = Capabilities::read(metadata, &mut self.problems) {
                    self.problems.extend(capabilities.contradictions(counters));
                }
            }
            Some(Value::Object(_)) => {}
            Some(_) => self.problems.push(Problem::of("metadata", "must be an object")),
        }
    }

    /// How the identity fields fit together; only when each of them alone is fine.
    fn identity(&mut self) {
        let reported = |key: &str| self.problems.iter().any(|problem| problem.field.as_deref() == Some(key));
        if IDENTITY_KEYS.into_iter().any(reported) {
            return;
        }
        self.problems.extend(resolve_identity(&IdentityInputs::of_record(self.record)).err());
    }

    fn field(&mut self, field: Field, rule: impl Fn(&Value, &str) -> Result<(), Problem>) {
        if let Some(value) = self.record.get(field.name()) {
            self.problems.extend(rule(value, field.name()).err());
        }
    }

    fn text(&mut self, field: Field) {
        self.field(field, |value, name| non_empty(value, name).map(drop));
    }

    fn at_least(&mut self, field: Field, least: i64) {
        self.field(field, |value, name| {
            let number = integer(value, name)?;
            if number < least.into() {
                return Err(Problem::of(name, &format!("must be >= {least}")));
            }
            Ok(())
        });
    }
}
