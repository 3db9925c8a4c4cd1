from stormlog.mlflow_integration import *
