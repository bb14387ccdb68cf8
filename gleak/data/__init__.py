"""Datasets: bundled, in the user's folders, or downloaded; one module per named dataset."""

from gleak.data import adult as adult
from gleak.data import breast_cancer as breast_cancer
from gleak.data import cifar10 as cifar10
from gleak.data import cifar100 as cifar100
from gleak.data import digits as digits
from gleak.data import faces as faces
from gleak.data import folder as folder
from gleak.data import imagenet as imagenet
from gleak.data import imagenet_sample as imagenet_sample
from gleak.data import lfw as lfw
from gleak.data import mnist as mnist
from gleak.data import photos as photos
from gleak.data import tiny_imagenet as tiny_imagenet
