//! Binds the library's references to its own functions when it is linked: in a library that is loaded late, `malloc` would otherwise mean
//! the program's, and the tables would be patched with what was in them before.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-Bsymbolic-functions");
}
