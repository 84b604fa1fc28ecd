"""IPython extension: results also as what code can read, not people alone. Tables give their columns (e2b/data), figures their
chart (e2b/chart), lists and dictionaries JSON; a picture that is saved is shown too. pandas, matplotlib and Pillow are looked at
only when the user has imported them."""
import importlib.util
import json
import math
import sys

from IPython.core.formatters import BaseFormatter, JSONFormatter
from traitlets import ObjectName, Unicode


def plain(value):
    """As JSON has it: no NaN, names as texts, NumPy's numbers as numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(one) for one in value]
    if hasattr(value, "isoformat"):
        return str(value) if str(value) == "NaT" else value.isoformat()
    if hasattr(value, "tolist"):  # NumPy
        return plain(value.tolist())
    return str(value)


class DataFormatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict, str)

    def __call__(self, obj):
        pandas = sys.modules.get("pandas")
        if pandas is None or not isinstance(obj, pandas.DataFrame):
            return super().__call__(obj)
        return {str(name): plain(column.tolist()) for name, column in obj.items()}


class ChartFormatter(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = (dict, str)

    def __call__(self, obj):
        figure = sys.modules.get("matplotlib.figure")
        if figure is None or not isinstance(obj, figure.Figure):
            return super().__call__(obj)
        import space_charts

        try:
            return plain(space_charts.chart_of(obj))
        except Exception:  # noqa: BLE001: a figure that is not understood is still a picture
            return {"type": "unknown", "title": None, "elements": []}


class ListFormatter(JSONFormatter):
    def __call__(self, obj):
        if isinstance(obj, (list, dict)):
            try:
                json.dumps(obj, default=lambda one: one.tolist() if hasattr(one, "tolist") else _refuse(one))
            except (TypeError, ValueError, RecursionError):
                return super().__call__(obj)
            return plain(obj), {"expanded": True}
        return super().__call__(obj)


def _refuse(one):
    raise TypeError(type(one).__name__)


class ShowWhenSaved:
    """Changes Pillow at the moment when the user imports it: Image.save(path) shows the image as well, and as there is no screen,
    Image.show() shows it in the same way."""

    def find_spec(self, name, path=None, target=None):
        if name != "PIL.Image":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            _change_pillow(module)

        spec.loader.exec_module = load_and_change
        return spec


def _change_pillow(module):
    from IPython.display import display

    save = module.Image.save

    def shown(image, fp, format=None, **options):
        if isinstance(fp, str):
            display(image)
        return save(image, fp, format, **options)

    module.Image.save = shown
    module.Image.show = lambda image, *a, **b: display(image)


def load_ipython_extension(shell):
    for formatter in (DataFormatter, ChartFormatter, ListFormatter):
        one = formatter(parent=shell.display_formatter)
        shell.display_formatter.formatters[one.format_type] = one
    if "PIL.Image" in sys.modules:
        _change_pillow(sys.modules["PIL.Image"])
    else:
        sys.meta_path.insert(0, ShowWhenSaved())
