from stormlog.wandb_integration import *
