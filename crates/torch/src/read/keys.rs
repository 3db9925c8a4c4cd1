//! The keys a snapshot is known to hold, numbered so that recognising one is a comparison of small integers.

macro_rules! keys {
    ($($name:ident = $text:literal),* $(,)?) => {
        #[derive(Clone, Copy)]
        #[repr(u8)]
        #[allow(dead_code, reason = "Empty only keeps number 0")]
        pub(super) enum Key { $($name),* }
        /// In the order of `Key`: they are the first strings of every table.
        pub(super) const NAMES: &[&str] = &[$($text),*];
    };
}

keys! {
    // The empty string must be number 0: it stands for "nothing recorded".
    Empty = "",
    Action = "action",
    Addr = "addr",
    Size = "size",
    Stream = "stream",
    TimeUs = "time_us",
    CompileContext = "compile_context",
    UserMetadata = "user_metadata",
    PoolId = "pool_id",
    Frames = "frames",
    DeviceFree = "device_free",
    Name = "name",
    Filename = "filename",
    Line = "line",
    Device = "device",
    Address = "address",
    TotalSize = "total_size",
    AllocatedSize = "allocated_size",
    ActiveSize = "active_size",
    RequestedSize = "requested_size",
    SegmentType = "segment_type",
    SegmentPoolId = "segment_pool_id",
    IsExpandable = "is_expandable",
    Blocks = "blocks",
    State = "state",
    History = "history",
    Stage = "stage",
    RealSize = "real_size",
    Segments = "segments",
    DeviceTraces = "device_traces",
    AllocatorSettings = "allocator_settings",
    ExternalAnnotations = "external_annotations",
    HostSegments = "host_segments",
    HostTraces = "host_traces",
}

/// How many there are.
pub(super) const COUNT: usize = NAMES.len();

impl Key {
    pub(super) const fn bit(self) -> u64 {
        1 << self as u8
    }

    pub(super) const fn text(self) -> &'static str {
        NAMES[self as usize]
    }
}
