//! Tiny made-up Go executables, 12 KB each: every table layout, both processors, with or without relocations and
//! section names. For the layouts that no archived toolchain writes any more, and as raw material for the fuzzer.

/// What to forge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forge {
    /// As in build info.
    pub go_version: &'static str,
    /// First word of the function table.
    pub magic: u32,
    /// arm64 instead of amd64.
    pub arm64: bool,
    /// Position independent: words are zero in the file, values in RELA.
    pub pie: bool,
    /// The table header has the text base (Go 1.18 to 1.25).
    pub text_start: bool,
}

/// One of each kind.
pub(crate) const KINDS: [Forge; 8] = [
    Forge { go_version: "go1.13.15", magic: V12, arm64: false, pie: false, text_start: false },
    Forge { go_version: "go1.14", magic: V12, arm64: true, pie: true, text_start: false },
    Forge { go_version: "go1.16.3", magic: V116, arm64: false, pie: false, text_start: false },
    Forge { go_version: "go1.17.13", magic: V116, arm64: false, pie: true, text_start: false },
    Forge { go_version: "go1.18.1 X:noregabi", magic: V118, arm64: false, pie: false, text_start: true },
    Forge { go_version: "go1.20", magic: V120, arm64: false, pie: true, text_start: true },
    Forge { go_version: "go1.26.1", magic: V120, arm64: true, pie: false, text_start: false },
    Forge { go_version: "go1.27rc1", magic: V120, arm64: false, pie: true, text_start: false },
];

const V12: u32 = 0xffff_fffb;
const V116: u32 = 0xffff_fffa;
const V118: u32 = 0xffff_fff0;
const V120: u32 = 0xffff_fff1;

/// Address of the first byte of the file.
pub(crate) const BASE: u64 = 0x40_0000;
/// Go's text: C start-up code comes before it, as with external linking.
pub(crate) const TEXT: u64 = BASE + 0x1100;
/// `main.main`: stack check, call, return.
pub(crate) const MAIN: u64 = TEXT;
/// `runtime.stackcheck`: loads g from thread-local storage.
pub(crate) const STACKCHECK: u64 = TEXT + 64;
/// A smaller twin of `main.main`.
pub(crate) const TWIN: u64 = TEXT + 128;
/// End of the text.
pub(crate) const ETEXT: u64 = TEXT + 160;
/// The moduledata.
pub(crate) const MODULEDATA: u64 = BASE + 0x2000;
const BUILDINFO: u64 = BASE + 0x2200;
const TABLE: u64 = BASE + 0x2400;
const RELA: u64 = BASE + 0x2c00;
const DYNAMIC: u64 = BASE + 0x2e00;
const SIZE: usize = 0x3000;

/// The file under construction.
struct File {
    bytes: Vec<u8>,
    /// Addresses and values of relocated words.
    relocated: Vec<(u64, u64)>,
    pie: bool,
}

impl File {
    fn put(&mut self, vaddr: u64, bytes: &[u8]) {
        let at = (vaddr - BASE) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, vaddr: u64, value: u64) {
        self.put(vaddr, &value.to_le_bytes());
    }

    fn half(&mut self, vaddr: u64, value: u32) {
        self.put(vaddr, &value.to_le_bytes());
    }

    /// A word that holds an address.
    fn pointer(&mut self, vaddr: u64, value: u64) {
        if self.pie {
            self.relocated.push((vaddr, value));
        } else {
            self.word(vaddr, value);
        }
    }
}

impl Forge {
    /// The bytes of the executable.
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut file = File { bytes: vec![0; SIZE], relocated: Vec::new(), pie: self.pie };
        self.headers(&mut file);
        self.code(&mut file);
        let pcln = self.table(&mut file);
        self.moduledata(&mut file, pcln);
        self.buildinfo(&mut file);
        self.relocations(&mut file);
        file.bytes
    }

    fn headers(&self, file: &mut File) {
        file.put(BASE, b"\x7fELF\x02\x01\x01");
        let machine = if self.arm64 { 183 } else { 62 };
        file.half(BASE + 16, if self.pie { 3 } else { 2 } | machine << 16);
        file.half(BASE + 20, 1);
        file.word(BASE + 32, 64);
        file.half(BASE + 52, 64 | 56 << 16);
        file.half(BASE + 56, 3);
        // (kind and flags, start, size): code, data, dynamic section.
        let segments =
            [(1 | 5 << 32, BASE, 0x2000), (1 | 6 << 32, MODULEDATA, 0x1000), (2 | 6 << 32, DYNAMIC, 48)];
        for (index, (kind, start, size)) in segments.into_iter().enumerate() {
            let at = BASE + 64 + 56 * index as u64;
            for (field, value) in
                [kind, start - BASE, start, start, size, size, 0x1000].into_iter().enumerate()
            {
                file.word(at + 8 * field as u64, value);
            }
        }
    }

    fn code(&self, file: &mut File) {
        file.put(TEXT - 0x100, &[0xcc; 0x100 + 160]);
        if self.arm64 {
            // ldr x16,[x28,#16]; cmp sp,x16; b.ls +16; nop; ret; nop; b start
            let words: [u32; 7] =
                [0xf940_0b90, 0xeb30_63ff, 0x5400_0089, 0xd503_201f, 0xd65f_03c0, 0xd503_201f, 0x17ff_fffa];
            for entry in [MAIN, STACKCHECK, TWIN] {
                for (index, word) in words.into_iter().enumerate() {
                    file.half(entry + 4 * index as u64, word);
                }
            }
        } else if self.stack_abi() {
            // mov rcx,fs:-8; cmp rsp,[rcx+16]; jbe +2; ret; nop; jmp start
            let body = b"\x64\x48\x8b\x0c\x25\xf8\xff\xff\xff\x48\x3b\x61\x10\x76\x02\xc3\x90\xeb\xed";
            file.put(MAIN, body);
            file.put(TWIN, body);
        } else {
            // cmp rsp,[r14+16]; jbe +3; push rbp; pop rbp; ret; jmp start
            let body = b"\x49\x3b\x66\x10\x76\x03\x55\x5d\xc3\xeb\xf5";
            file.put(MAIN, body);
            file.put(TWIN, body);
        }
        if !self.arm64 {
            // mov rax,fs:-8; ret
            file.put(STACKCHECK, b"\x64\x48\x8b\x04\x25\xf8\xff\xff\xff\xc3");
        }
    }

    fn stack_abi(&self) -> bool {
        self.magic == V12 || self.go_version.starts_with("go1.16") || self.go_version.contains("noregabi")
    }

    /// Writes the function table; offset of the function list in it.
    fn table(&self, file: &mut File) -> u64 {
        let quantum = if self.arm64 { 4 } else { 1 };
        file.half(TABLE, self.magic);
        file.half(TABLE + 4, quantum << 16 | 8 << 24);
        let (names, pcln) = if self.magic == V12 { (0x200, 0) } else { (0x80, 0x180) };
        let words: &[u64] = match self.magic {
            V12 => &[3],
            V116 => &[3, 1, 0x80, 0x100, 0x120, 0x140, 0x180],
            _ => &[3, 1, 0, 0x80, 0x100, 0x120, 0x140, 0x180],
        };
        for (index, word) in words.iter().enumerate() {
            file.word(TABLE + 8 + 8 * index as u64, *word);
        }
        if self.text_start {
            file.pointer(TABLE + 24, TEXT);
        }
        file.put(TABLE + names, b"\0main.main\0runtime.stackcheck\0");
        let name_base = if self.magic == V12 { names as u32 } else { 0 };
        let list = if self.magic == V12 { 16 } else { 0 };
        for (index, (entry, name)) in [(MAIN, 1), (STACKCHECK, 11), (TWIN, 1)].into_iter().enumerate() {
            let record = 0x60 + 16 * index as u64;
            self.entry(file, TABLE + pcln, list, index as u64, (entry, record));
            let name_at = if self.relative() { 4 } else { 8 };
            file.half(TABLE + pcln + record + name_at, name_base + name);
        }
        self.entry(file, TABLE + pcln, list, 3, (ETEXT, 0));
        pcln
    }

    fn relative(&self) -> bool {
        self.magic == V118 || self.magic == V120
    }

    fn entry(&self, file: &mut File, pcln: u64, list: u64, index: u64, (entry, record): (u64, u64)) {
        if self.relative() {
            file.half(pcln + list + 8 * index, (entry - TEXT) as u32);
            file.half(pcln + list + 8 * index + 4, record as u32);
        } else {
            file.pointer(pcln + list + 16 * index, entry);
            if record != 0 {
                file.word(pcln + list + 16 * index + 8, record);
            }
        }
    }

    fn moduledata(&self, file: &mut File, pcln: u64) {
        file.pointer(MODULEDATA, TABLE);
        let minpc = if self.magic == V12 { 80 } else { 160 };
        if self.magic != V12 {
            file.pointer(MODULEDATA + 104, TABLE + pcln);
        }
        for (index, value) in [TEXT, ETEXT, TEXT, ETEXT].into_iter().enumerate() {
            file.pointer(MODULEDATA + minpc + 8 * index as u64, value);
        }
    }

    fn buildinfo(&self, file: &mut File) {
        file.put(BUILDINFO, b"\xff Go buildinf:\x08");
        let len = self.go_version.len() as u8;
        if self.relative() {
            file.put(BUILDINFO + 15, &[2]);
            file.put(BUILDINFO + 32, &[len]);
            file.put(BUILDINFO + 33, self.go_version.as_bytes());
            return;
        }
        file.pointer(BUILDINFO + 16, BUILDINFO + 64);
        file.pointer(BUILDINFO + 24, BUILDINFO + 80);
        file.pointer(BUILDINFO + 64, BUILDINFO + 96);
        file.word(BUILDINFO + 72, len.into());
        file.put(BUILDINFO + 96, self.go_version.as_bytes());
    }

    fn relocations(&self, file: &mut File) {
        let kind = if self.arm64 { 1027 } else { 8 };
        let relocated = std::mem::take(&mut file.relocated);
        for (index, (slot, value)) in relocated.iter().enumerate() {
            let at = RELA + 24 * index as u64;
            file.word(at, *slot);
            file.word(at + 8, kind);
            file.word(at + 16, *value);
        }
        for (index, word) in [7, RELA, 8, 24 * relocated.len() as u64, 0, 0].into_iter().enumerate() {
            file.word(DYNAMIC + 8 * index as u64, word);
        }
    }
}
