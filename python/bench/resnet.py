"""The ResNets of CIFAR's size, as a user of PyTorch writes them: 6 n + 2 layers, option-A
shortcuts."""
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.stride, self.widen = stride, after - before

    def forward(self, x):
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.widen:
            half = self.widen // 2
            x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, half, half))
        return F.relu(out + x)


def resnet(depth, classes=10):
    layers, before = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for after, stride in ((16, 1), (32, 2), (64, 2)):
        for k in range((depth - 2) // 6):
            layers.append(Block(before, after, stride if k == 0 else 1))
            before = after
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    return net
