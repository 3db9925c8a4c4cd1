//! Shipping to objects over HTTP and the way back, against a receiver that does what is asked of it, or what others do to it meanwhile.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use stormlog_ship::{Settings, fetch, ship_stored};

type Objects = BTreeMap<String, Vec<u8>>;

/// Changes the store before a request is answered: method, path, headers in small letters.
type Meanwhile = dyn FnMut(&mut Objects, &str, &str, &str) + Send;

/// A receiver that takes PUT and GET.
struct Receiver {
    url: String,
    objects: Arc<Mutex<Objects>>,
}

impl Receiver {
    /// `knows_conditions`: `If-None-Match` is obeyed.
    fn start(knows_conditions: bool, mut meanwhile: Box<Meanwhile>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/runs", listener.local_addr().unwrap());
        let objects = Arc::new(Mutex::new(Objects::new()));
        let store = Arc::clone(&objects);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &mut store.lock().unwrap(), knows_conditions, &mut *meanwhile);
            }
        });
        Receiver { url, objects }
    }

    fn manifest(&self, name: &str) -> Value {
        let objects = self.objects.lock().unwrap();
        serde_json::from_slice(&objects[&format!("/runs/{name}/manifest.json")]).unwrap()
    }
}

fn serve(mut stream: TcpStream, objects: &mut Objects, knows_conditions: bool, meanwhile: &mut Meanwhile) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while reader.read_line(&mut head).unwrap_or(0) > 2 {}
    let first = head.lines().next().unwrap_or_default().to_owned();
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    meanwhile(objects, &method, &path, &head);
    let is_conditional = head.contains("if-none-match: *");
    let (status, answer) = match method.as_str() {
        "PUT" if knows_conditions && is_conditional && objects.contains_key(&path) => {
            ("412 Precondition Failed", Vec::new())
        }
        "PUT" => {
            objects.insert(path.clone(), body);
            ("200 OK", Vec::new())
        }
        "GET" => match objects.get(&path) {
            Some(object) => ("200 OK", object.clone()),
            None => ("404 Not Found", Vec::new()),
        },
        _ => ("204 No Content", Vec::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&answer)).unwrap();
}

fn make_run(root: &Path, started_at_ns: u64) -> PathBuf {
    let run = root.join("run-1");
    std::fs::create_dir_all(run.join("rank0-pid7/log")).unwrap();
    let record = json!({
        "format": "stormlog.run", "schema_version": 1, "status": "completed", "host": "node1", "started_at_ns": started_at_ns,
    });
    std::fs::write(run.join("run.json"), record.to_string()).unwrap();
    std::fs::write(run.join("rank0-pid7/log/000001.slog"), "samples").unwrap();
    run
}

fn settings(url: &str) -> Settings {
    Settings::new(url, None, None, Vec::new(), false).unwrap()
}

/// Ships a run; the name it has there.
fn shipped(run: &Path, url: &str) -> String {
    let mut names = Vec::new();
    ship_stored(&[run.to_owned()], &settings(url), &mut |_, result| {
        names.push(result.unwrap().name);
        Ok(())
    })
    .unwrap();
    names.remove(0)
}

/// The manifest of another process's run.
fn of_another() -> Vec<u8> {
    let manifest = json!({
        "format": "stormlog.shipment", "version": 1, "origin": "another", "block_bytes": 1 << 20, "updated_at_ns": 1,
        "is_complete": false, "files": {},
    });
    manifest.to_string().into_bytes()
}

#[test]
fn name_at_a_store_that_another_process_took_meanwhile_is_left_to_it() {
    const FIRST: &str = "/runs/run-1-node1/manifest.json";
    // A store that keeps the first: the other process is quicker by a moment. One that keeps the last: it is later by a moment.
    for knows_conditions in [true, false] {
        let mut gets = 0;
        let meanwhile = move |objects: &mut Objects, method: &str, path: &str, _: &str| {
            if path != FIRST {
                return;
            }
            gets += usize::from(method == "GET");
            let is_now =
                if knows_conditions { method == "PUT" && gets == 1 } else { method == "GET" && gets == 2 };
            if is_now {
                objects.insert(FIRST.to_owned(), of_another());
            }
        };
        let receiver = Receiver::start(knows_conditions, Box::new(meanwhile));
        let place = tempfile::tempdir().unwrap();
        let run = make_run(place.path(), 1);
        assert_eq!(shipped(&run, &receiver.url), "run-1-node1-2", "conditions: {knows_conditions}");
        assert_eq!(receiver.manifest("run-1-node1")["origin"], "another");
        assert_eq!(receiver.manifest("run-1-node1-2")["is_complete"], true);
        assert_eq!(shipped(&run, &receiver.url), "run-1-node1-2", "it is continued");
    }
}

#[test]
fn first_manifest_at_a_store_is_put_on_condition_that_there_is_none() {
    let conditional = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&conditional);
    let meanwhile = move |_: &mut Objects, method: &str, path: &str, head: &str| {
        if method == "PUT" && path.ends_with("manifest.json") {
            seen.lock().unwrap().push(head.contains("if-none-match: *"));
        }
    };
    let receiver = Receiver::start(true, Box::new(meanwhile));
    let place = tempfile::tempdir().unwrap();
    assert_eq!(shipped(&make_run(place.path(), 1), &receiver.url), "run-1-node1");
    let conditional = conditional.lock().unwrap();
    assert!(conditional.len() > 1 && conditional[0], "{conditional:?}");
    assert!(!conditional[1..].contains(&true), "later ones replace it: {conditional:?}");
}

#[test]
fn fetch_has_its_manifest_before_the_first_block_so_that_a_killed_one_is_continued() {
    let place = tempfile::tempdir().unwrap();
    let into = place.path().join("into");
    let kept = into.join("run-1-node1/.shipment.json");
    let (at_first_block, seen) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(kept.clone())));
    let first = Arc::clone(&at_first_block);
    let meanwhile = move |_: &mut Objects, method: &str, path: &str, _: &str| {
        if method == "GET" && path.contains("/files/") {
            let text = std::fs::read(&*seen.lock().unwrap()).ok();
            first.lock().unwrap().get_or_insert(text);
        }
    };
    let receiver = Receiver::start(false, Box::new(meanwhile));
    let run = make_run(place.path(), 1);
    shipped(&run, &receiver.url);
    let fetched = |into: &Path| {
        let mut results = Vec::new();
        fetch(&settings(&format!("{}/run-1-node1", receiver.url)), into, false, &mut |result| {
            results.push(result);
            Ok(())
        })
        .unwrap();
        results.remove(0)
    };
    assert!(fetched(&into).unwrap().is_complete);
    let first = at_first_block.lock().unwrap().clone().unwrap();
    let first = first.expect("the manifest is there when the first block is asked for");
    // What a kill at that moment leaves is continued.
    let again = place.path().join("again");
    std::fs::create_dir_all(again.join("run-1-node1")).unwrap();
    std::fs::write(again.join("run-1-node1/.shipment.json"), first).unwrap();
    let run_again = fetched(&again).unwrap();
    assert!(run_again.is_complete && run_again.bytes > 0);
    let log = "rank0-pid7/log/000001.slog";
    assert_eq!(std::fs::read(run_again.run.join(log)).unwrap(), std::fs::read(run.join(log)).unwrap());
}
