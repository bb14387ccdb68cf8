"""Writes the table of the workflow's stages into docs/design.md, from the stages themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gleak.knowledge.base import Pretraining
from gleak.studies.cell import LEVELS, Cell
from gleak.studies.stage_files import CandidateDraw, Inputs, Made, Shard, files_in
from gleak.studies.stages import STAGES, Stage

DESIGN = Path(__file__).with_name("design.md")
BEGIN, END = "<!-- stages: python docs/write_stages.py -->\n", "<!-- end of stages -->\n"
HONEST = (
    "photos/lenet/untrained/honest/fedsgd/none/"
    "rog+postprocessor=postprocessor+labels=known+tagger=tagger"
)
CRAFTED = "photos/lenet/untrained/fishing/fedsgd/none/fishing"
MEMBERS = "photos/lenet/untrained/honest/fedsgd/none/gradient_cosine"
OF_MEMBERSHIP = ("draw_candidates", "infer_members", "score_members")
AUDITED = "photos/lenet/untrained/honest/fedsgd/dp/data_canaries"
OF_AUDITS = ("audit_privacy", "score_audit")


def table() -> str:
    """Return the table as Markdown: folder, rule, files that are written, files that are read."""
    rows = [
        f"| `{_folder(stage)}` | `{stage.rule}` | {_written(stage)} | {_read(stage)} |"
        for stage in STAGES.values()
    ]
    return "\n".join(["| folder | rule | writes | reads |", "|---|---|---|---|", *rows]) + "\n"


def _folder(stage: Stage) -> str:
    """Return the last folders of a path, of cells from the level that the stage adds on."""
    shown = stage.folder.replace("{", "<").replace("}", ">")
    levels = shown.removeprefix("artifacts/").split("/")
    return shown if levels[0] != "<dataset>" else "/".join(levels[-2:])


def _written(stage: Stage) -> str:
    files = [file if isinstance(file, str) else "granted/*.h5" for file in stage.outputs.values()]
    return ", ".join(f"`{file}`".replace("{", "<").replace("}", ">") for file in files)


def _read(stage: Stage) -> str:
    """Return the files of other stages that a job reads, and what it reads besides."""
    names = dict.fromkeys(_name(made) for made in files_in(_reads(stage)))
    parts = [f"`{name}`" for name in names] + [stage.reads_else] * bool(stage.reads_else)
    return ", ".join(parts) or "nothing"


def _name(made: Made) -> str:
    return str(STAGES[made.rule].outputs.get(made.output, "granted/*.h5"))


def _reads(stage: Stage) -> Inputs:
    """Return what a job reads of cells that together read all there is; of studies nothing."""
    if "{study}" in stage.folder:
        return {}
    found: Inputs = {}
    shown = {**dict.fromkeys(OF_MEMBERSHIP, (MEMBERS,)), **dict.fromkeys(OF_AUDITS, (AUDITED,))}
    for cell in map(_cell, shown.get(stage.rule, (CRAFTED, HONEST))):
        for name, files in stage.reads(_subject(stage, cell)).items():
            found[name] = files or found.get(name, [])
    return found


def _cell(text: str) -> Cell:
    return Cell.parse(dict(zip(LEVELS, text.split("/"), strict=True)))


def _subject(stage: Stage, cell: Cell) -> Any:
    """Return that of a job of a stage, or of a shard of it."""
    shard = Shard(cell, 1, 1)
    if stage.rule == "train_knowledge":
        return Pretraining.parse("photos", "codec")
    if stage.rule == "draw_candidates":
        return CandidateDraw(cell.upto("defense"), cell.attack.candidates)
    return {"attack_shard": shard, "gather_shards": [shard]}.get(stage.rule, cell)


def written(text: str) -> str:
    """Return the design page with the table as it is now."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    DESIGN.write_text(written(DESIGN.read_text(encoding="utf-8")), encoding="utf-8")
