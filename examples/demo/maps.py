"""The demo's picture, drawn from what headrace read out of the Zarr stores."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm

LAND = "#c9c5bd"  # where a variable has no value
INK = "#333333"


class Reader:
    """Variables by (file stem, name), and their coordinates in the order of the axes."""

    def __init__(self, hr, stored: list, device: str, to_numpy):
        self._open = lambda path: hr.open_array(path, mode="r", device=device)
        self._paths = {(Path(s.variable.file).stem, s.variable.name): s.path for s in stored}
        self._to_numpy = to_numpy

    def __contains__(self, key) -> bool:
        return key in self._paths

    def keys(self):
        return self._paths.keys()

    def values(self, key, selection=()) -> np.ndarray:
        """The variable without its `tile` axis, and within that what `selection` asks for."""
        array = self._open(str(self._paths[key] / key[1]))
        return self._to_numpy(array[(0, *selection)])

    def axes(self, key) -> list[np.ndarray | None]:
        path = self._paths[key]
        names = self._open(str(path / key[1])).dimension_names[1:]
        return [
            self._to_numpy(self._open(str(path / n))[...]) if (path / n).is_dir() else None
            for n in names
        ]


def _extent(longitude: np.ndarray, latitude: np.ndarray) -> tuple[float, float, float, float]:
    dx, dy = np.diff(longitude).mean() / 2, np.diff(latitude).mean() / 2
    return longitude[0] - dx, longitude[-1] + dx, latitude[0] - dy, latitude[-1] + dy


def _map(axis, longitude, latitude, values, **style):
    axis.set_facecolor(LAND)
    extent = _extent(longitude, latitude)
    image = axis.imshow(
        values, origin="lower", extent=extent, aspect="equal", interpolation="nearest", **style
    )
    axis.set_xticks(
        [x for x in range(0, 421, 60) if extent[0] <= x <= extent[1]],
        [_degrees(x) for x in range(0, 421, 60) if extent[0] <= x <= extent[1]],
    )
    axis.set_yticks(range(-60, 61, 30), ["60S", "30S", "0", "30N", "60N"])
    axis.set_ylim(max(-90, extent[2]), min(90, extent[3]))
    return image


def _degrees(x: int) -> str:
    x %= 360
    return "0" if x == 0 else "180" if x == 180 else f"{x}E" if x < 180 else f"{360 - x}W"


def _finish(figure, axis, image, title: str, unit: str) -> None:
    axis.set_title(title, fontsize=10.5, loc="left", color=INK)
    axis.tick_params(labelsize=8, colors=INK, length=3)
    for spine in axis.spines.values():
        spine.set_linewidth(0.6)
    bar = figure.colorbar(image, cax=axis.inset_axes([1.015, 0, 0.022, 1]))
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=8, colors=INK, length=2)
    bar.set_label(unit, fontsize=8.5, color=INK)


def _relief_colours() -> LinearSegmentedColormap:
    sea = plt.get_cmap("GnBu_r")(np.linspace(0, 0.78, 128))
    land = plt.get_cmap("gist_earth")(np.linspace(0.52, 0.98, 128))
    return LinearSegmentedColormap.from_list("relief", np.vstack([sea, land]))


def _sea_surface(figure, axis, reader: Reader, key) -> None:
    _, latitude, longitude = reader.axes(key)
    surface = reader.values(key, (0,))
    image = _map(axis, longitude, latitude, surface, cmap="Spectral_r", vmin=-2, vmax=30)
    levels = np.arange(0, 30, 5)
    style = {"colors": "white", "linewidths": 0.5, "alpha": 0.8}
    axis.contour(longitude, latitude, surface, levels, **style)
    _finish(figure, axis, image, "Sea surface temperature, annual mean (Levitus)", "deg C")


def _relief(figure, axis, reader: Reader, key) -> None:
    latitude, longitude = reader.axes(key)
    height = reader.values(key, (slice(None, None, 4), slice(None, None, 4)))
    norm = TwoSlopeNorm(0, -7500, 5500)
    image = _map(axis, longitude[::4], latitude[::4], height, cmap=_relief_colours(), norm=norm)
    _finish(figure, axis, image, "Relief of the Earth (ETOPO5)", "m")


def _winds(figure, axis, reader: Reader, u_key, v_key) -> None:
    _, latitude, longitude = reader.axes(u_key)
    every_january = (slice(0, None, 12),)
    u = reader.values(u_key, every_january).mean(axis=0)
    v = reader.values(v_key, every_january).mean(axis=0)
    image = _map(axis, longitude, latitude, np.hypot(u, v), cmap="BuPu", vmin=0, vmax=12)
    thin = 4
    axis.quiver(
        longitude[::thin],
        latitude[::thin],
        u[::thin, ::thin],
        v[::thin, ::thin],
        color=INK,
        width=0.0014,
        scale=330,
        headwidth=4,
    )
    _finish(figure, axis, image, "Wind in January, 1982-1992 (US Navy)", "m/s")


def _section(figure, axis, reader: Reader, key) -> None:
    _, depth, latitude, longitude = reader.axes(key)
    at = int(np.argmin(np.abs(longitude - 210)))  # 150 W, through the middle of the Pacific
    section = reader.values(key, (slice(None), slice(None), slice(None), at)).mean(axis=0)
    axis.set_facecolor(LAND)
    levels = np.arange(-2, 31, 2)
    image = axis.contourf(latitude, depth, section, levels, cmap="Spectral_r", extend="both")
    axis.contour(latitude, depth, section, levels, colors="white", linewidths=0.4, alpha=0.8)
    axis.set_ylim(1000, 0)
    axis.set_box_aspect(0.5)  # as high as the maps beside it
    axis.set_xlim(-78, 62)
    axis.set_xticks(range(-60, 61, 30), ["60S", "30S", "0", "30N", "60N"])
    axis.set_ylabel("depth, m", fontsize=8.5, color=INK)
    title = "Pacific temperature at 150 W, annual mean (Ocean Atlas)"
    _finish(figure, axis, image, title, "deg C")


def _any_field(figure, axis, reader: Reader, key) -> None:
    """A map of a variable the demo knows nothing about: its first field, on its grid if any."""
    axes = reader.axes(key)
    field = reader.values(key, (0,) * (len(axes) - 2))
    latitude, longitude = axes[-2:]
    if latitude is None or longitude is None:
        longitude, latitude = np.arange(field.shape[1]), np.arange(field.shape[0])
    axis.set_facecolor(LAND)
    image = axis.pcolormesh(longitude, latitude, field, cmap="Spectral_r", shading="nearest")
    _finish(figure, axis, image, f"{key[1]} ({key[0]})", "")


def _panels(reader: Reader) -> list:
    known = [
        (_sea_surface, [("levitus_climatology", "TEMP")]),
        (_relief, [("etopo5", "ROSE")]),
        (_winds, [("monthly_navy_winds", "UWND"), ("monthly_navy_winds", "VWND")]),
        (_section, [("ocean_atlas_subset", "TEMP")]),
    ]
    found = [(draw, keys) for draw, keys in known if all(k in reader for k in keys)]
    return found or [(_any_field, [key]) for key in list(reader.keys())[:4]]


def draw(reader: Reader, caption: str, path: Path) -> None:
    panels = _panels(reader)
    rows = -(-len(panels) // 2)
    figure, axes = plt.subplots(
        rows, 2, figsize=(13.6, 3.45 * rows + 0.4), squeeze=False, layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
    for axis, (panel, keys) in zip(axes.flat, panels, strict=False):
        panel(figure, axis, reader, *keys)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.supxlabel(caption, fontsize=9, color=INK)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
