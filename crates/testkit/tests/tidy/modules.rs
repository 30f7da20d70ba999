//! Which file of a crate names something of which other, read from `use` lines and paths as text.
//!
//! A name that a module re-exports leads to the file that defines it. What a module has of a parent
//! of its own is no arrow: the parent's words are its children's.

use super::sources::{Source, is_comment};
use std::collections::{BTreeMap, BTreeSet};

/// Components from the root of the crate on; none for the root itself.
pub type ModulePath = Vec<String>;

/// The files of one crate and the arrows between them.
pub struct Modules {
    uses: BTreeMap<ModulePath, Vec<Import>>,
    pub arrows: BTreeMap<ModulePath, BTreeSet<ModulePath>>,
}

/// One name of a `use`.
struct Import {
    path: Vec<String>,
    alias: String,
}

impl Modules {
    /// Of the sources below `crates/NAME/src`.
    pub fn of(name: &str, sources: &[Source]) -> Modules {
        let start = format!("{name}/src/");
        let texts: BTreeMap<_, _> = sources
            .iter()
            .filter_map(|source| {
                let file = source.name.strip_prefix(&start)?.strip_suffix(".rs")?;
                let root = ["lib", "main"].contains(&file);
                let path: ModulePath = file.split('/').map(str::to_owned).collect();
                Some((if root { Vec::new() } else { path }, code(source)))
            })
            .collect();
        let uses = texts
            .iter()
            .map(|(module, text)| (module.clone(), imports(text)))
            .collect();
        let mut modules = Modules {
            uses,
            arrows: BTreeMap::new(),
        };
        for (module, text) in &texts {
            let arrows = modules.arrows_of(module, text);
            modules.arrows.insert(module.clone(), arrows);
        }
        modules
    }

    /// Circles of more than `files_max` files: each can be reached from each.
    pub fn circles(&self, files_max: usize) -> Vec<BTreeSet<ModulePath>> {
        let mut circles: Vec<BTreeSet<ModulePath>> = Vec::new();
        let reach: BTreeMap<_, _> = (self.arrows.keys())
            .map(|module| (module, self.reached_from(module)))
            .collect();
        for (module, reached) in &reach {
            if circles.iter().any(|circle| circle.contains(*module)) {
                continue;
            }
            let back = |other: &&ModulePath| reach[other].contains(*module);
            let circle: BTreeSet<_> = reached.iter().filter(back).cloned().collect();
            if circle.len() > files_max {
                circles.push(circle);
            }
        }
        circles
    }

    fn reached_from(&self, module: &ModulePath) -> BTreeSet<ModulePath> {
        let mut reached = BTreeSet::new();
        let mut next = vec![module];
        while let Some(module) = next.pop() {
            for other in &self.arrows[module] {
                if reached.insert(other.clone()) {
                    next.push(other);
                }
            }
        }
        reached
    }

    fn arrows_of(&self, module: &ModulePath, text: &str) -> BTreeSet<ModulePath> {
        let body: String = statements(text).filter(|part| !is_use(part)).collect();
        let named = |alias: &str| words(&body).any(|word| word == alias);
        let imported = self.uses[module]
            .iter()
            .filter(|import| import.alias == "*" || named(&import.alias))
            .map(|import| import.path.clone());
        imported
            .chain(paths(&body))
            .filter_map(|path| self.absolute(module, &path))
            .map(|path| self.defines(&path, 0))
            .filter(|other| !module.starts_with(other))
            .collect()
    }

    /// From the root of the crate on. `None`: another crate's.
    fn absolute(&self, module: &ModulePath, path: &[String]) -> Option<Vec<String>> {
        let supers = path.iter().take_while(|part| *part == "super").count();
        let first = path.first()?.as_str();
        let (base, rest) = match first {
            "crate" => (&module[..0], &path[1..]),
            "self" => (&module[..], &path[1..]),
            "super" => (
                &module[..module.len().checked_sub(supers)?],
                &path[supers..],
            ),
            _ => {
                let child = [module, &path[..1]].concat();
                self.uses
                    .contains_key(&child)
                    .then_some((&module[..], path))?
            }
        };
        Some([base, rest].concat())
    }

    /// The file that defines what this path names.
    fn defines(&self, path: &[String], depth: usize) -> ModulePath {
        let len = (0..=path.len())
            .rev()
            .find(|len| self.uses.contains_key(&path[..*len]))
            .expect("the root is a module");
        let (module, rest) = (path[..len].to_vec(), &path[len..]);
        let Some(name) = rest.first() else {
            return module;
        };
        let import = self.uses[&module].iter().find(|use_| use_.alias == *name);
        let exported = import.and_then(|import| self.absolute(&module, &import.path));
        match exported {
            Some(exported) if depth < 8 && exported != path => {
                self.defines(&[&exported, &rest[1..]].concat(), depth + 1)
            }
            _ => module,
        }
    }
}

/// The lines without comments.
fn code(source: &Source) -> String {
    let lines = source.lines.iter().filter(|line| !is_comment(line));
    lines.flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// Up to each semicolon at the end of a line.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(";\n")
}

/// Does a statement end with a `use`? Behind the beginning of a block or an attribute, perhaps.
fn use_start(statement: &str) -> Option<usize> {
    let mut at = 0;
    for line in statement.split_inclusive('\n') {
        let words = line.trim_start();
        let is_use = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "]
            .iter()
            .any(|start| words.starts_with(start));
        if is_use {
            return Some(at);
        }
        at += line.len();
    }
    None
}

fn is_use(statement: &str) -> bool {
    use_start(statement).is_some()
}

fn imports(text: &str) -> Vec<Import> {
    let mut imports = Vec::new();
    for statement in statements(text) {
        if let Some(start) = use_start(statement) {
            let (_, tree) = statement[start..].split_once("use ").expect("it is a use");
            expand(&[], tree.trim().trim_end_matches(';'), &mut imports);
        }
    }
    imports
}

/// `a::{b, c::d as e}` is `a::b` and `a::c::d`.
fn expand(prefix: &[String], tree: &str, imports: &mut Vec<Import>) {
    let mut depth = 0;
    let parts = tree.split(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        letter == ',' && depth == 0
    });
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        let (path, group) = match part.split_once('{') {
            Some((path, group)) => (path, group.rsplit_once('}').map(|(group, _)| group)),
            None => (part, None),
        };
        let (path, alias) = path.split_once(" as ").unwrap_or((path, ""));
        let path = path.split("::").map(|part| part.trim().to_owned());
        let mut path: Vec<_> = prefix.iter().cloned().chain(path).collect();
        path.retain(|part| !part.is_empty());
        if let Some(group) = group {
            expand(&path, group, imports);
            continue;
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let last = path.last().cloned().unwrap_or_default();
        let alias = if alias.is_empty() {
            last
        } else {
            alias.trim().to_owned()
        };
        imports.push(Import { path, alias });
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

/// Everything of the form `a::b` that begins with a module's letter.
fn paths(text: &str) -> impl Iterator<Item = Vec<String>> {
    let parts =
        text.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':');
    parts
        .filter(|part| {
            part.contains("::") && part.starts_with(|letter: char| letter.is_lowercase())
        })
        .map(|part| {
            part.split("::")
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect()
        })
}
