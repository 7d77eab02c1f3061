//! The file of samples, on a real disk.

use super::*;
use dataplane::flow::Span;
use dataplane::flow::estimate::Doubts;

fn row(micros: u32, doubts: Doubts) -> Row {
    Row {
        clients: "K, T".into(),
        site: "seoul".into(),
        member: Some("203.0.113.1".parse().unwrap()),
        sample: Sample {
            kind: Kind::Response,
            value: Span::micros(micros),
            doubts,
        },
        flow: 0xbeef,
    }
}

#[test]
fn rows_are_csv_that_says_whose_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples.csv");
    let file = SampleFile::open(&path, 1 << 20, 2).unwrap();
    let again = Row {
        sample: Sample {
            kind: Kind::Retransmitted,
            value: Span(3),
            doubts: Doubts::NONE,
        },
        ..row(0, Doubts::NONE)
    };
    file.write(vec![row(38_100, Doubts::TIMING.and(Doubts::SHARED)), again]);
    let counts = file.counts.clone();
    drop(file);
    assert_eq!(counts.written.load(Ordering::Relaxed), 2);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        lines[0],
        "time,clients,site,member,kind,value,flow,confidence,doubts"
    );
    let (time, rest) = lines[1].split_once(',').unwrap();
    assert!(time.parse::<f64>().unwrap() > 1.7e9, "{time}");
    assert_eq!(
        rest,
        r#""K, T",seoul,203.0.113.1,response,38100,0000beef,low,timing shared"#
    );
    assert!(
        lines[2].ends_with(",retransmitted,3,0000beef,high,"),
        "{}",
        lines[2]
    );
}

#[test]
fn files_are_turned_over_by_size_and_the_oldest_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples.csv");
    // A row is 72 bytes and the header 60: one row fits in 140, two do not.
    for n in 1..=4 {
        let file = SampleFile::open(&path, 140, 3).unwrap();
        file.write(vec![row(n, Doubts::NONE)]);
        drop(file);
    }
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    for (name, n) in [("samples.csv", 4), ("samples.csv.1", 3), ("samples.csv.2", 2)] {
        let text = text(name);
        assert!(text.starts_with(HEADER), "{name}: {text}");
        assert_eq!(text.lines().count(), 2, "{name}: {text}");
        assert!(text.contains(&format!(",response,{n},")), "{name}: {text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_file_that_cannot_be_written_is_said_at_start() {
    let error = SampleFile::open(Path::new("/nowhere/samples.csv"), 1 << 20, 2).unwrap_err();
    assert!(
        format!("{error:#}").contains("/nowhere/samples.csv, the `file` of [latency]"),
        "{error:#}"
    );
}

#[test]
fn a_disk_that_is_full_loses_rows_and_says_so() {
    // Every write to it fails.
    let file = SampleFile::open(Path::new("/dev/full"), u64::MAX, 2).unwrap();
    let many: Vec<Row> = (0..1000).map(|n| row(n, Doubts::NONE)).collect();
    file.write(many);
    let counts = file.counts.clone();
    drop(file);
    assert_eq!(counts.written.load(Ordering::Relaxed), 0);
    assert_eq!(counts.lost.load(Ordering::Relaxed), 1000);
}
