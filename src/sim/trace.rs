use std::path::Path;

use super::scenario::Error;

/// A table of numbers: the columns of a CSV file with a header.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Trace {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<f64>>,
}

impl Trace {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let named = |error: String| Error(format!("{}: {error}", path.display()));
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_path(path)
            .map_err(|error| named(error.to_string()))?;
        let header = reader.headers().map_err(|error| named(error.to_string()))?;
        let columns = header.iter().map(str::to_owned).collect();
        let mut rows = Vec::new();
        for row in reader.records() {
            let row = row.map_err(|error| named(error.to_string()))?;
            let number = |field: &str| {
                let number = field.parse::<f64>().ok().filter(|number| number.is_finite());
                number.ok_or_else(|| named(format!("{field:?} is not a number")))
            };
            rows.push(row.iter().map(number).collect::<Result<_, _>>()?);
        }
        Ok(Self { columns, rows })
    }

    /// The position of a column.
    pub(super) fn column(&self, name: &str) -> Result<usize, Error> {
        let position = self.columns.iter().position(|column| column == name);
        position.ok_or_else(|| Error(format!("the trace has no column {name:?}")))
    }
}
