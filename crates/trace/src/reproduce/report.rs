//! A report: figures with their tables, as Markdown with plots beside it, and as JSON.

use super::plot::Plot;
use serde_json::{Value, json};
use std::fmt::Write;
use std::io;
use std::path::Path;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The heads of its columns.
    pub head: Vec<String>,
    /// Its rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            head: head.iter().map(|&text| text.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<String> = self.head.iter().map(|_| "---".to_owned()).collect();
        let mut text = line(&self.head) + &line(&rule);
        self.rows.iter().for_each(|row| text += &line(row));
        text
    }

    fn json(&self) -> Value {
        let row = |row: &Vec<String>| {
            let cells = self
                .head
                .iter()
                .cloned()
                .zip(row.iter().map(|cell| json!(cell)));
            Value::Object(cells.collect())
        };
        Value::Array(self.rows.iter().map(row).collect())
    }
}

/// A figure of the paper, or one of our own.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The name of its files, and in JSON.
    pub id: &'static str,
    /// Its heading.
    pub title: String,
    /// Its explanation, a paragraph each.
    pub text: Vec<String>,
    /// Its figures.
    pub table: Table,
    /// Its plot.
    pub plot: Option<Plot>,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name of its files.
    pub name: &'static str,
    /// The heading of the page.
    pub title: String,
    /// The text above all figures.
    pub text: Vec<String>,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Report {
    /// The page.
    pub fn markdown(&self) -> String {
        let mut page = format!("# {}\n", self.title);
        let paragraphs = |page: &mut String, text: &[String]| {
            for text in text {
                let _ = write!(page, "\n{text}\n");
            }
        };
        paragraphs(&mut page, &self.text);
        for figure in &self.figures {
            let Figure { id, title, .. } = figure;
            let _ = write!(page, "\n## {title}\n");
            paragraphs(&mut page, &figure.text);
            if figure.plot.is_some() {
                let _ = write!(page, "\n![{title}]({}/{id}.svg)\n", self.name);
            }
            let _ = write!(page, "\n{}", figure.table.markdown());
        }
        page
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let figure = |figure: &Figure| {
            let rows = figure.table.json();
            json!({ "id": figure.id, "title": figure.title, "rows": rows })
        };
        let figures: Vec<Value> = self.figures.iter().map(figure).collect();
        json!({ "title": self.title, "figures": figures })
    }

    /// Writes its page, the same as JSON, and the plots, into a directory.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let plots = dir.join(self.name);
        std::fs::create_dir_all(&plots)?;
        std::fs::write(dir.join(format!("{}.md", self.name)), self.markdown())?;
        let json = format!("{:#}\n", self.json());
        std::fs::write(dir.join(format!("{}.json", self.name)), json)?;
        for figure in &self.figures {
            if let Some(plot) = &figure.plot {
                let file = plots.join(format!("{}.svg", figure.id));
                std::fs::write(file, plot.svg(&figure.title))?;
            }
        }
        Ok(())
    }
}
