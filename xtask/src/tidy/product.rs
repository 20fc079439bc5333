//! Product code of a file: what stands in front of its tests, line by line.

use super::numbered;
use crate::source::Line;
use crate::tree::{Tree, kind};
use std::collections::BTreeSet;

/// Every file of product code in the tree; those that only tests have are left out.
pub(super) fn products(tree: &Tree) -> Vec<(&str, Product<'_>)> {
    let mut products: Vec<(&str, Product<'_>)> = tree
        .texts()
        .filter(|(path, _)| is_product(path))
        .map(|(path, text)| (path, Product::of(path, text, tree.lines(path))))
        .collect();
    let of_tests: BTreeSet<String> =
        products.iter().flat_map(|(_, product)| product.modules_of_tests.clone()).collect();
    products.retain(|(path, _)| !of_tests.contains(*path));
    products
}

/// Whether a file holds product code: Rust under `src/` that no test is made of.
fn is_product(path: &str) -> bool {
    kind(path) == "rs"
        && path.contains("src/")
        && !path.contains("/tests/")
        && !path.ends_with("/tests.rs")
}

/// The product code of a file: its lines in front of its tests, with the text of each as it stands.
#[derive(Debug)]
pub(super) struct Product<'a> {
    pub(super) lines: Vec<(usize, &'a Line, Vec<char>)>,
    /// Paths of files that only tests have.
    modules_of_tests: Vec<String>,
}

impl<'a> Product<'a> {
    fn of(path: &str, text: &str, split: &'a [Line]) -> Product<'a> {
        let mut product = Product { lines: Vec::new(), modules_of_tests: Vec::new() };
        let mut tests_begin = false;
        for (number, (line, shown)) in numbered(split.iter().zip(text.split('\n'))) {
            let code = line.code.trim();
            if tests_begin && !code.is_empty() {
                // A declaration of a line ends there; anything else is the tests at the end of a file.
                let Some(declared) = code.strip_suffix(';') else { break };
                tests_begin = false;
                let module = declared.strip_prefix("mod ").map(str::trim);
                product.modules_of_tests.extend(module.map(|name| beside(path, name)));
                continue;
            }
            if code.contains("#[cfg(test)]") {
                tests_begin = true;
                continue;
            }
            product.lines.push((number, line, shown.chars().collect()));
        }
        product
    }
}

/// Where a module that `path` declares lies.
fn beside(path: &str, module: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    match file {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{folder}/{module}.rs"),
        _ => format!("{folder}/{}/{module}.rs", file.trim_end_matches(".rs")),
    }
}
