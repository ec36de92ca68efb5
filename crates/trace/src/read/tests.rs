//! Each format, plain and compressed, whole and damaged.

use super::*;
use std::io::Write as _;
use wire::splitmix64;

/// Files of a test, gone with it.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let name = format!("ariel-trace-{name}-{}", std::process::id());
        let dir = Self(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&dir.0).unwrap();
        dir
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn access(time_us: u64, client: u32, op: Op, file: u64, block: u32) -> Access {
    Access {
        time_us,
        client,
        op,
        file,
        block,
    }
}

fn read(path: &Path, format: Option<&Format>) -> Result<Vec<Access>, ReadError> {
    Reader::open(path, format, 4096, 7, false)?.collect()
}

fn own(accesses: &[Access]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), 8192).unwrap();
    for access in accesses {
        writer.write(access).unwrap();
    }
    writer.finish().unwrap()
}

fn some() -> Vec<Access> {
    let op = |n: u64| Op::ALL[n as usize % 5];
    let block = |n: u64| if n % 5 < 2 { n as u32 * 3 } else { 0 };
    (0..50)
        .map(|n| access(n * 10, n as u32 % 4, op(n), n % 9, block(n)))
        .collect()
}

#[test]
fn what_is_written_is_read_also_when_compressed() {
    let dir = Dir::new("own");
    let plain = own(&some());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    // Two frames, as parallel compressors write them.
    let (one, two) = plain.split_at(plain.len() / 2);
    let mut zstd = ruzstd::encoding::compress_to_vec(one, level);
    zstd.extend(ruzstd::encoding::compress_to_vec(two, level));
    for (name, bytes) in [
        ("a", plain),
        ("b.gz", gzip.finish().unwrap()),
        ("c.zst", zstd),
    ] {
        let path = dir.file(name, &bytes);
        assert_eq!(read(&path, None).unwrap(), some(), "{name}");
    }
}

#[test]
fn objects_of_oracle_general_are_read_whole() {
    let dir = Dir::new("oracle");
    let mut bytes = Vec::new();
    for (time, object, size) in [(3_u32, 77_u64, 4097_u32), (4, 78, 0), (5, 79, 1)] {
        bytes.extend(time.to_le_bytes());
        bytes.extend(object.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend((-1_i64).to_le_bytes());
    }
    let path = dir.file("x.oracleGeneral.bin", &bytes);
    let expected = [
        access(3_000_000, 7, Op::Read, 77, 0),
        access(3_000_000, 7, Op::Read, 77, 1),
        access(5_000_000, 7, Op::Read, 79, 0),
    ];
    assert_eq!(read(&path, None).unwrap(), expected);
}

#[test]
fn both_versions_of_vscsi_are_read() {
    let dir = Dir::new("vscsi");
    // Sector 17 lies in block 2 of 4096 bytes; 1024 bytes from sector 15 reach into the next one.
    let records = [(0x28_u16, 17_u64, 512_u32), (0x2a, 15, 1024), (0x35, 0, 0)];
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for (command, sector, length) in records {
        first.extend([0; 4]);
        first.extend(length.to_le_bytes());
        first.extend([0; 4]);
        first.extend(command.to_le_bytes());
        first.extend((1_u16 << 8).to_le_bytes());
        first.extend(sector.to_le_bytes());
        first.extend(9_u64.to_le_bytes());
        second.extend(command.to_le_bytes());
        second.extend((2_u16 << 8).to_le_bytes());
        second.extend([0; 4]);
        second.extend(length.to_le_bytes());
        second.extend([0; 4]);
        second.extend(sector.to_le_bytes());
        second.extend(9_u64.to_le_bytes());
        second.extend([0; 8]);
    }
    let expected = [
        access(9, 7, Op::Read, 0, 2),
        access(9, 7, Op::Write, 0, 1),
        access(9, 7, Op::Write, 0, 2),
    ];
    for (name, bytes) in [("1.vscsi", first), ("2.vscsi", second)] {
        let path = dir.file(name, &bytes);
        assert_eq!(read(&path, None).unwrap(), expected, "{name}");
    }
}

#[test]
fn columns_are_found_by_name_and_by_number() {
    let dir = Dir::new("csv");
    let named = "when,\"who, really\",key,what,bytes\n1.5,3,77,get,8192\n2,4,abc,DELETE,1\n";
    let path = dir.file("named.csv", named.as_bytes());
    let columns: Columns = "time=when,file=key,op=what,size=bytes".parse().unwrap();
    let found = read(&path, Some(&Format::Csv(columns))).unwrap();
    assert_eq!(found[0], access(1_500_000, 7, Op::Read, 77, 0));
    assert_eq!(found[1], access(1_500_000, 7, Op::Read, 77, 1));
    assert_eq!((found[2].op, found.len()), (Op::Delete, 3));

    let path = dir.file("plain.csv", b"10;5;set;77;4096\n");
    let mut columns: Columns = "time=1,client=2,op=3,file=4,offset=5".parse().unwrap();
    (columns.delimiter, columns.time_unit) = (b';', TimeUnit::Milliseconds);
    let found = read(&path, Some(&Format::Csv(columns))).unwrap();
    assert_eq!(found, [access(10_000, 5, Op::Write, 77, 1)]);
}

#[test]
fn an_error_says_where_and_what() {
    let dir = Dir::new("errors");
    let columns = |list: &str| Some(Format::Csv(list.parse().unwrap()));
    let cut = &own(&some())[..16 + 24 * 3 + 5];
    for (name, bytes, format, says) in [
        ("cut", cut, None, "after 5 of 24 bytes"),
        ("what", b"hello".as_slice(), None, "--format"),
        (
            "op.csv",
            b"1,frob\n",
            columns("file=1,op=2"),
            "line 1: the operation `frob`",
        ),
        (
            "name.csv",
            b"a,b\n1,2\n",
            columns("file=c"),
            "no column is called c; there are a, b",
        ),
        (
            "few.csv",
            b"1,2\n3\n",
            columns("file=2"),
            "line 2: the row has no column 2",
        ),
        (
            "far.csv",
            b"1,1e18\n",
            columns("file=1,offset=2"),
            "is the unit right?",
        ),
    ] {
        let path = dir.file(name, bytes);
        let error = read(&path, format.as_ref()).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(name), "{error}");
    }
    assert!("file=1,block=2,offset=3".parse::<Columns>().is_err());
    assert!("time=1".parse::<Columns>().is_err());
    assert!("file=0".parse::<Columns>().is_err());
}

#[test]
fn no_bytes_make_reading_panic() {
    let dir = Dir::new("noise");
    let columns = Format::Csv("file=1,offset=2,size=3,op=4".parse().unwrap());
    let formats = [Format::Own, Format::OracleGeneral, Format::Vscsi, columns];
    let mut seed = 1;
    for round in 0..200 {
        let length = splitmix64(&mut seed) % 300;
        let mut bytes: Vec<u8> = (0..length).map(|_| splitmix64(&mut seed) as u8).collect();
        // Some begin as if they were what they are not.
        let begin: &[u8] = match round % 4 {
            0 => &own::MAGIC,
            1 => &[0x28, 0xb5, 0x2f, 0xfd],
            2 => &[0x1f, 0x8b, 8],
            _ => &[],
        };
        bytes.splice(..begin.len().min(bytes.len()), begin.iter().copied());
        let path = dir.file("noise", &bytes);
        for format in &formats {
            if let Ok(reader) = Reader::open(&path, Some(format), 4096, 0, true) {
                reader.take(10_000).take_while(Result::is_ok).for_each(drop);
            }
        }
    }
}

#[test]
fn traces_are_merged_by_time() {
    let dir = Dir::new("merge");
    let one = dir.file(
        "1",
        &own(&[access(50, 0, Op::Read, 1, 0), access(70, 0, Op::Read, 1, 1)]),
    );
    let two = dir.file(
        "2",
        &own(&[access(5, 1, Op::Read, 2, 0), access(15, 1, Op::Read, 2, 1)]),
    );
    let open = |path| Reader::open(path, None, 4096, 0, false).unwrap();
    let mut seen = Vec::new();
    merge(vec![open(&one), open(&two)], |access| {
        seen.push((access.time_us, access.client, access.block));
        seen.len() < 4
    })
    .unwrap();
    assert_eq!(seen, [(0, 0, 0), (0, 1, 0), (10, 1, 1), (20, 0, 1)]);
}
