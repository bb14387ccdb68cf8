"""What a client does to its update before sending it: one file each."""

from gleak.defenses import dp as dp
from gleak.defenses import fedcdp as fedcdp
from gleak.defenses import gaussian as gaussian
from gleak.defenses import laplace as laplace
from gleak.defenses import low_rank as low_rank
from gleak.defenses import none as none
from gleak.defenses import qsgd as qsgd
from gleak.defenses import quantize as quantize
from gleak.defenses import random_mask as random_mask
from gleak.defenses import secure_aggregation as secure_aggregation
from gleak.defenses import signsgd as signsgd
from gleak.defenses import soteria as soteria
from gleak.defenses import threshold as threshold
from gleak.defenses import topk as topk
