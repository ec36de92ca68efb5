//! The structures of io_uring: the memory of a seat (7.42), and the command that names it.

structures! {
    /// Head of a seat's memory: what was a message, taken apart.
    pub struct UringHeader of 288 bytes {
        /// `InHeader` of a request, `OutHeader` of its answer.
        pub in_out: UringArea,
        /// The arguments with which a request begins.
        pub op_in: UringArea,
        /// About the payload.
        pub entry: UringEntry,
    }

    /// Room for a structure.
    pub struct UringArea of 128 bytes {
        /// Its bytes.
        pub bytes: [[u64; 8]; 2],
    }

    /// About the payload of a seat.
    pub struct UringEntry of 32 bytes {
        /// None is defined.
        pub flags: u64,
        /// The number by which the answer's command names the request.
        pub commit_id: u64,
        /// Bytes of the payload.
        pub payload_sz: u32,
        /// Nothing.
        pub padding: u32,
        /// Nothing.
        pub reserved: u64,
    }

    /// A command, in the second half of its submission.
    pub struct UringCommand of 24 bytes {
        /// None is defined.
        pub flags: u64,
        /// The request that is answered.
        pub commit_id: u64,
        /// The queue: the number of a processor.
        pub qid: u16,
        /// Nothing.
        pub padding: [u8; 6],
    }
}
