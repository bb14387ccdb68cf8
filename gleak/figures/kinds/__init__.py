"""Registered kinds of figures, each with its spec and its drawing."""

from gleak.figures.kinds import attack_table as attack_table
from gleak.figures.kinds import convergence as convergence
from gleak.figures.kinds import heatmap as heatmap
from gleak.figures.kinds import plots as plots
from gleak.figures.kinds import result_table as result_table
from gleak.figures.kinds import samples as samples
from gleak.figures.kinds import tradeoff as tradeoff
