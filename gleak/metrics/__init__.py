"""Metrics: how much of the truth an attack shows, its cost, a model's worth. One file each."""

from gleak.metrics import categories as categories
from gleak.metrics import embedding_cosine as embedding_cosine
from gleak.metrics import epsilon_paper as epsilon_paper
from gleak.metrics import epsilon_prv as epsilon_prv
from gleak.metrics import epsilon_rdp as epsilon_rdp
from gleak.metrics import evaluations as evaluations
from gleak.metrics import iterations as iterations
from gleak.metrics import lpips as lpips
from gleak.metrics import lpips_oracle_sign as lpips_oracle_sign
from gleak.metrics import mse as mse
from gleak.metrics import objective as objective
from gleak.metrics import peak_memory as peak_memory
from gleak.metrics import psnr as psnr
from gleak.metrics import psnr_oracle_sign as psnr_oracle_sign
from gleak.metrics import restarts as restarts
from gleak.metrics import seconds as seconds
from gleak.metrics import ssim as ssim
from gleak.metrics import success_content as success_content
from gleak.metrics import success_labels as success_labels
from gleak.metrics import test_accuracy as test_accuracy
