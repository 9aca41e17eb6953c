"""Tables in memory (pandas, pyarrow, polars), also as CSV files, which the library encodes."""
import csv

import numpy as np

_GAPS = ("None", "nan", "<NA>", "NaT")  # missing values, as str() writes them
_ROWS = 10_000  # written at a time
_BLANKS = " \t\r"


def is_table(X):
    """Whether X is a pandas.DataFrame, a pyarrow or a polars table."""
    return hasattr(X, "columns") and (hasattr(X, "dtypes") or hasattr(X, "column_names"))


def column_names(X):
    """Of a table; None: X has none."""
    if not is_table(X):
        return None
    return list(X.column_names if hasattr(X, "column_names") else X.columns)


def columns(table):
    """Names and columns. Two columns may have the same name."""
    if hasattr(table, "column_names"):  # pyarrow
        return [*zip(table.column_names, table.columns)]
    if hasattr(table, "items"):  # pandas
        return [*table.items()]
    if not hasattr(table, "get_columns"):
        raise TypeError(f"X is a {type(table).__name__}: expected a table in memory")
    return [*zip(table.columns, table.get_columns())]  # polars


def is_category(column):
    """Whether its type says so."""
    kind = column.dtype if hasattr(column, "dtype") else column.type
    return str(kind).lower().startswith(("category", "categorical", "enum", "dictionary"))


def column_values(column):
    """A column as a NumPy array."""
    if is_category(column) and not hasattr(column, "dtype"):  # pyarrow's loses missing values
        column = column.cast(column.type.value_type)
    return column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)


def cells(values):
    """An array as texts: "" is a missing value; whole numbers have no ".0", which pandas writes
    where a column has missing values. Blanks around a text are removed, as from a CSV file's."""
    if values.dtype.kind == "M":
        values = np.where(np.isnat(values), "", np.datetime_as_string(values, unit="auto"))
    elif values.dtype.kind == "m":
        values = values / np.timedelta64(1, "D")
    return [_cell(value) for value in values.tolist()]


def _cell(value):
    if isinstance(value, str):
        return value.strip(_BLANKS)
    text = str(value)
    if text in _GAPS:
        return ""
    return text[:-2] if isinstance(value, float) and text.endswith(".0") else text


def name_text(name):
    """A column's name, as it is in a CSV file."""
    return str(name).strip(_BLANKS)


def are_booleans(values):
    """Whether they are False and True, and missing ones."""
    if values.dtype.kind != "O":
        return values.dtype.kind == "b"
    if not {bool, np.bool_}.intersection(map(type, values.tolist())):
        return False
    return all(isinstance(v, (bool, np.bool_)) or not _cell(v) for v in values.tolist())


def as_booleans(values):
    """0 and 1 as False and True."""
    if values.dtype.kind not in "iufO":
        return values
    found = [bool(v) if isinstance(v, (int, float, np.number)) and v in (0, 1) else v
             for v in values.tolist()]
    return np.array(found + [None], dtype=object)[:-1]  # None: nothing is turned into an axis


def columns_as_texts(table):
    """Names, as they are in a CSV file, and arrays."""
    return [(name_text(name), column_values(column)) for name, column in columns(table)]


def write_csv(path, named):
    """Writes names and arrays as a CSV file."""
    names, arrays = zip(*named)
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        out.writerow(names)
        for k in range(0, len(arrays[0]), _ROWS):
            out.writerows(zip(*(cells(values[k:k + _ROWS]) for values in arrays)))


def csv_spec(path, **options):
    """The SPEC of such a file, with the options that are not None."""
    options = dict(options, header="yes", sep="comma")
    words = [path] + [f"{name}={value}" for name, value in options.items() if value is not None]
    return "csv:" + ",".join(word.replace(",", "\\,") for word in words)
