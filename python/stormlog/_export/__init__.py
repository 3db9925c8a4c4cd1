"""Export of a finished recording to Weights & Biases or MLflow.

Private, behind `stormlog.wandb_integration` and `.mlflow_integration`. Must import nothing here.
"""
