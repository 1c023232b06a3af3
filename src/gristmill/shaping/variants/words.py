"""Words that names are made of, and words that are none: keywords and what is always there in one of the languages."""

MODIFIERS = (
    "active actual added allowed base batch best bound broken cached central chosen clean close cold common complete "
    "core current daily dense direct distinct dry early empty exact extra fallback fast final first fixed flat folded "
    "formal found free fresh full given global good great half hidden high host idle initial inner input joined just "
    "known large last late lazy left light limited linked loaded local long loose low main major marked matched merged "
    "middle minor missing mixed narrow nearby needed nested next normal old only open original other outer padded pair "
    "parsed partial past pending plain prior proper quick random rare raw ready real recent related remaining rest "
    "right rough safe saved scaled second seen shared sharp short simple single slow small solid sorted spare sparse "
    "special stable stale steady strict stored strong sub temp tight total trimmed unique upper usual valid visible "
    "warm weak whole wide working"
).split()

NOUNS = (
    "account action address agent amount anchor angle answer archive area aspect asset axis backup bag balance band "
    "bank basket batch beacon bead bin bit blob board body border bottle bound box branch bridge brush bucket budget "
    "bundle button cable cache candidate card cargo carrier cell chain chapter charge chart check child choice chunk "
    "circle clause client clock cluster column command comment contact content context corner cost counter cover crate "
    "cursor curve cycle decision delta depth design detail device diff digest digit dish draft drop edge effect effort "
    "element engine entry epoch event example excess extent factor feature figure filter flag flow folder footer force "
    "form fraction fragment frame gap gate gauge glyph goal grade grain graph grid group guard guess guide handle head "
    "header height hint holder image impact info item joint journey judge junction kernel kit label ladder lane layer "
    "layout leaf leg lemma lens letter level lever limit line load loop lot margin mark marker mass matter measure "
    "member memo message meter method middle mode model moment motion needle node notch note notice number offset "
    "option order outcome outline output owner packet page panel parcel part party patch pattern payload peer phase "
    "picture piece pile pin pipe pivot place plan planet plate point policy pool portion position post power prefix "
    "price prize probe product profile progress proof quota rank rate ratio reading reason record region reply report "
    "request reserve result review ring role root round route row rule sample scale scene schema scope score seat "
    "section seed segment sensor series service session sheet shift side sign sketch slot snippet source span spec "
    "speed spot staff stage stamp stem step stock story strand stream stretch stripe suffix summary surface symbol "
    "tail tally target task term text theme thread ticket tile title token tool topic total trace track trail trait "
    "tree trend trial turn unit value variant vector version view visit volume wave weight wheel width wing winner "
    "word worker zone"
).split()

SHORT = (
    "a b c d e f g h i j k m n p q r s t u v w x y z aa bb cc dd ee ff gg hh ii jj kk mm nn pp qq rr ss tt uu vv ww "
    "xx yy zz ab ac ad bc bd cd da db dc dx dy ea eb ec fa fb fc ga gb gc ha hb hc ka kb ma mb na nb pa pb pc pq px py "
    "qa qb ra rb rc rs sa sb sc st ta tb tc tx ty ua ub uv va vb vw wa wb wx xa xb xy ya yb yz za zb zx ax bx cx"
).split()

KEYWORDS = frozenset(
    (
        # Python, with what is a keyword only here and there
        "False None True and as assert async await break case class continue def del elif else except exec finally for "
        "from global if import in is lambda match nonlocal not or pass print raise return try type while with yield _ "
        "self cls "
        # Rust
        "abstract auto become box const crate do dyn enum extern false final fn gen impl let loop macro macro_rules "
        "mod move mut override priv pub raw ref safe static struct super trait true typeof union unsafe unsized use "
        "virtual where default try dyn "
        # JavaScript and TypeScript
        "accessor any arguments asserts asserts bigint boolean catch constructor debugger declare delete export "
        "extends function get global implements infer instanceof interface intrinsic is keyof meta module namespace "
        "never new null number object of out package private protected public readonly require satisfies set string "
        "switch symbol target this throw undefined unique unknown using var void "
        # Go
        "chan defer fallthrough func go goto iota map nil range select "
        # Java
        "byte char double exports float int long native non open opens permits provides record requires sealed short "
        "strictfp synchronized throws to transient transitive uses volatile when "
        # C and C++
        "alignas alignof and_eq asm atomic bitand bitor bool char8_t char16_t char32_t co_await co_return co_yield "
        "compl concept const_cast consteval constexpr constinit decltype defined dynamic_cast explicit friend "
        "inline mutable noexcept not_eq nullptr operator or_eq register reinterpret_cast restrict signed sizeof "
        "static_assert static_cast template thread_local typedef typeid typename typeof_unqual unsigned wchar_t xor "
        "xor_eq import module pragma near far "
    ).split()
)

BUILTINS = frozenset(
    (
        # Python
        "abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile complex "
        "copyright credits delattr dict dir divmod enumerate eval exit filter float format frozenset getattr "
        "globals hasattr hash help hex id input int isinstance issubclass iter len license list locals map max "
        "memoryview min next object oct open ord pow property quit range repr reversed round set setattr slice sorted "
        "staticmethod str sum tuple vars zip basestring cmp coerce execfile file intern long raw_input reduce reload "
        "unichr unicode xrange "
        # Rust: primitive types, and functions and macros of the prelude
        "i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f16 f32 f64 f128 char drop vec format panic println "
        "print eprintln eprint write writeln todo matches assert dbg env concat line column file cfg "
        # JavaScript: global objects and functions, those of browsers among them
        "alert atob blur btoa caches close closed confirm console crypto document event external fetch find focus "
        "frames history isFinite isNaN length location menubar moveBy moveTo name navigator open opener origin parent "
        "parseFloat parseInt performance personalbar postMessage process prompt scheduler screen screenLeft screenTop "
        "screenX screenY scroll scrollX scrollY scrollbars self status statusbar stop structuredClone toolbar top "
        "window globalThis exports require module buffer escape unescape print root "
        # Go
        "append cap clear close complex complex64 complex128 copy delete error float32 float64 imag int8 int16 int32 "
        "int64 len make max min new panic println real recover rune string uint uint8 uint16 uint32 uint64 uintptr "
        "comparable main init "
        # C and C++: what headers and compilers define, functions that are often macros, and names of std
        "bool complex errno stdin stdout stderr linux unix i386 arm mips sun vax major minor small hyper assert abort "
        "alloca atoi bcmp bcopy begin bind bsearch bzero calloc clock close connect count data distance div dup end "
        "exit exp fill find first floor fork free gamma getc getenv index int8_t int16_t int32_t int64_t intptr_t "
        "isatty j0 j1 jn kill link listen log malloc max_align_t memcpy move nullptr_t off_t pipe poll printf "
        "ptrdiff_t putc putchar puts qsort rand read realloc recv remainder remove rename rindex second select send "
        "signal size size_t sleep socket sort ssize_t stat std strlen swap sync system tie time time_t uint8_t "
        "uint16_t uint32_t uint64_t uintptr_t uint_t unlink wait write y0 y1 yn round left right fixed hex oct dec "
        "basic_string array vector list deque pair tuple optional variant span hash function plus minus greater less "
        "extent rank ratio all any none access truncate accept bit environ daemon nice pause times "
    ).split()
)
