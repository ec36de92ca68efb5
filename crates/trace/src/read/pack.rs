//! Compressed traces: the first bytes tell how.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP: [u8; 2] = [0x1f, 0x8b];
const BUFFER: usize = 1 << 18;

/// The bytes of a file as they were before they were compressed by zstd or gzip, if they were.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::with_capacity(BUFFER, File::open(path)?);
    let first = file.fill_buf()?;
    let plain: Box<dyn Read> = if first.starts_with(&ZSTD) {
        Box::new(Frames {
            file: Some(file),
            frame: None,
        })
    } else if first.starts_with(&GZIP) {
        Box::new(flate2::bufread::MultiGzDecoder::new(file))
    } else {
        return Ok(Box::new(file));
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER, plain)))
}

type Frame = ruzstd::decoding::StreamingDecoder<BufReader<File>, ruzstd::decoding::FrameDecoder>;

/// A file of one zstd frame after another, as `zstd` and `pzstd` write it.
struct Frames {
    /// Between two frames.
    file: Option<BufReader<File>>,
    frame: Option<Frame>,
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let bytes = frame.read(buffer)?;
                if bytes > 0 || buffer.is_empty() {
                    return Ok(bytes);
                }
                self.file = self.frame.take().map(Frame::into_inner);
            }
            let Some(mut file) = self.file.take() else {
                return Ok(0);
            };
            if file.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.frame = Some(Frame::new(file).map_err(io::Error::other)?);
        }
    }
}
