//! Questions over the recordings at a path: events, sessions, runs, attachments, issues, correlation, summaries.
